package pointer

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/beamdata/poolfeatures"
)

// plainModel is the selector as the parity spec §4 and the variants' formulas are written: one query, one candidate, one
// choice at a time, in float64, with nothing shared, folded or batched.
type plainModel struct {
	p           *Policy
	temperature float64            // of the policy
	skip        []float64          // [K] similarity and relation
	pool        *poolfeatures.Pool // with features
	coarse      []float64          // [K]
	top         []bool             // [K]
	s0, hidden  []float64
	s           []float64   // state
	g           [][]float64 // [K] unit candidate vectors
	chosen      []int64
}

// plain is log π of each step of one selection; Stop may be the last.
func plain(p *Policy, src *Source, q int, actions []int64, temperature float64) []float64 {
	m := newPlain(p, src, q, temperature)
	var out []float64
	for _, a := range actions {
		z := m.logits()
		if a == Stop {
			out = append(out, z[len(z)-1]-logSumExp(z))
			break
		}
		out = append(out, z[a]-logSumExp(z))
		m.choose(a)
	}
	return out
}

func (m *plainModel) get(name string) []float64 { return m.p.params.Get(name).Floats() }

// linear is W x (+ b), with the part of the rows from..from+n of a packed weight.
func (m *plainModel) linear(weight, bias string, x []float64) []float64 {
	shape := m.p.params.Shape(weight)
	y := matvec(m.get(weight), shape[0], shape[1], x)
	if bias != "" {
		for i, b := range m.get(bias) {
			y[i] += b
		}
	}
	return y
}

func newPlain(p *Policy, src *Source, q int, temperature float64) *plainModel {
	m := &plainModel{p: p, temperature: temperature}
	pool := src.set.Pool(q)
	raw := unit(widen(src.set.Table.Row(int(src.set.Row(q)))))
	if p.opt.Skip.Enabled {
		m.skip = plainRelation(p, src, q)
		for j, row := range pool {
			cos := inner(raw, unit(widen(src.set.Table.Row(int(row)))))
			if !p.opt.Relation.enabled() {
				m.skip[j] = 0
			}
			m.skip[j] += p.opt.Skip.Scale * m.get("skip_scale")[0] * float64(float32(cos))
		}
	}
	if p.features != nil {
		m.pool, _ = poolOf(p.features, src.set, q)
	}
	if p.opt.Head == "none" {
		if m.skip == nil {
			m.skip = make([]float64, len(pool))
		}
		return m
	}
	embed := func(row int32) []float64 {
		x := widen(src.set.Table.Row(int(row)))
		if p.params.Has("input_proj.weight") {
			x = m.linear("input_proj.weight", "", x)
		}
		return x
	}
	x := embed(src.set.Row(q))
	var c [][]float64
	for _, row := range pool {
		c = append(c, embed(row))
	}
	if p.opt.Coarse.TopM != nil {
		query := unit(m.linear("coarse.query_proj.weight", "", x))
		for j := range c {
			m.coarse = append(m.coarse, m.withSkip(inner(query, unit(m.linear("coarse.cand_proj.weight", "", c[j])))/p.opt.Temperature, j))
		}
		order := make([]int, len(c))
		for j := range order {
			order[j] = j
		}
		slices.SortStableFunc(order, func(a, b int) int { // descending
			if m.coarse[a] > m.coarse[b] {
				return -1
			}
			return 1
		})
		m.top = make([]bool, len(c))
		for _, j := range order[:min(*p.opt.Coarse.TopM, len(c))] {
			m.top[j] = true
		}
	}
	for l := range p.opt.CandidateEncoder.Layers {
		c = m.selfAttention(fmt.Sprintf("candidate_encoder.%d.", l), c)
	}
	for l := range p.opt.NumLayers {
		attn, norm := fmt.Sprintf("cross_attn_layers.%d.", l), fmt.Sprintf("attn_norms.%d.", l)
		y := m.attention(x, c, p.opt.NumHeads, attn+"in_proj_weight", attn+"in_proj_bias")
		y = m.linear(attn+"out_proj.weight", attn+"out_proj.bias", y)
		for i := range y {
			y[i] += x[i]
		}
		x = m.norm(norm, y)
	}
	m.s = unit(m.linear("query_proj.weight", "", x))
	m.s0, m.hidden = m.s, m.s
	if p.opt.StateUpdate == "transformer" {
		m.s = m.readPrefix(nil)
	}
	for j := range c {
		m.g = append(m.g, unit(m.linear("cand_proj.weight", "", c[j])))
	}
	return m
}

// attention is one query over keys, the projections packed as PyTorch packs them.
func (m *plainModel) attention(x []float64, c [][]float64, heads int, weight, bias string) []float64 {
	h := len(x)
	w, b := m.get(weight), m.get(bias)
	project := func(part int, v []float64) []float64 {
		y := matvec(w[part*h*h:(part+1)*h*h], h, h, v)
		for i := range y {
			y[i] += b[part*h+i]
		}
		return y
	}
	query, out, dh := project(0, x), make([]float64, h), h/heads
	for hd := range heads {
		score := make([]float64, len(c))
		for j := range c {
			k := project(1, c[j])
			for i := hd * dh; i < (hd+1)*dh; i++ {
				score[j] += query[i] * k[i] / math.Sqrt(float64(dh))
			}
		}
		lse := logSumExp(score)
		for j := range c {
			v := project(2, c[j])
			for i := hd * dh; i < (hd+1)*dh; i++ {
				out[i] += math.Exp(score[j]-lse) * v[i]
			}
		}
	}
	return out
}

func (m *plainModel) norm(name string, x []float64) []float64 {
	var mean, variance float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	w, b, out := m.get(name+"weight"), m.get(name+"bias"), make([]float64, len(x))
	for i, v := range x {
		out[i] = (v-mean)/math.Sqrt(variance+1e-5)*w[i] + b[i]
	}
	return out
}

func (m *plainModel) selfAttention(pre string, c [][]float64) [][]float64 {
	normed := make([][]float64, len(c))
	for j := range c {
		normed[j] = m.norm(pre+"norm1.", c[j])
	}
	scaled := func(x []float64) []float64 {
		for i := range x {
			x[i] /= math.Sqrt(float64(len(x)))
		}
		return x
	}
	out := make([][]float64, len(c))
	for j := range c {
		y := m.attention(normed[j], normed, m.p.opt.CandidateEncoder.Heads, pre+"self_attn.in_proj_weight", pre+"self_attn.in_proj_bias")
		y = add(c[j], scaled(m.linear(pre+"self_attn.out_proj.weight", pre+"self_attn.out_proj.bias", y)))
		hidden := m.linear(pre+"linear1.weight", pre+"linear1.bias", m.norm(pre+"norm2.", y))
		for i, v := range hidden {
			hidden[i] = v * 0.5 * (1 + math.Erf(v/math.Sqrt2))
		}
		out[j] = add(y, scaled(m.linear(pre+"linear2.weight", pre+"linear2.bias", hidden)))
	}
	return out
}

// withSkip turns a learned score into a logit.
func (m *plainModel) withSkip(learned float64, j int) float64 {
	if m.skip == nil {
		return learned
	}
	return learned*m.get("learned_scale")[0] + m.skip[j]
}

// logits are those of the next choice: the pool, then Stop if there is one.
func (m *plainModel) logits() []float64 {
	opt, step := m.p.opt, len(m.chosen)
	k := len(m.g)
	if m.g == nil {
		k = len(m.skip)
	}
	excluded := math.Inf(-1)
	if opt.Taken == "minus_100" {
		excluded = -100
	}
	query := m.s
	if opt.Decoder == "slots" {
		h, row := opt.HiddenDim, min(step, opt.DistinctSteps-1)
		scale, shift := m.get("slots.scale")[row*h:], m.get("slots.vector")[row*h:]
		query = make([]float64, h)
		for i := range query {
			query[i] = m.s[i]*scale[i] + shift[i]
		}
		query = unit(query)
	}
	fine := make([]float64, k)
	for j := range fine {
		switch {
		case m.g == nil:
			fine[j] = m.skip[j]
		default:
			fine[j] = m.withSkip(m.head(query, m.g[j])/opt.Temperature, j) + m.diversity(j)/opt.Temperature
		}
		fine[j] = (fine[j] + m.features(j)) / m.temperature
		if slices.Contains(m.chosen, int64(j)) {
			fine[j] = excluded
		}
	}
	if m.coarse != nil {
		var fineIn, coarseIn []float64
		coarse := make([]float64, k)
		for j := range coarse {
			if coarse[j] = m.coarse[j] / m.temperature; slices.Contains(m.chosen, int64(j)) {
				coarse[j] = excluded
			}
			if m.top[j] {
				fineIn, coarseIn = append(fineIn, fine[j]), append(coarseIn, coarse[j])
			}
		}
		all := logSumExp(coarse)
		for j := range fine { // log-probabilities of the two stages
			if m.top[j] {
				fine[j] = logSumExp(coarseIn) - all + fine[j] - logSumExp(fineIn)
			} else {
				fine[j] = coarse[j] - all
			}
		}
	}
	if opt.Stop.Enabled {
		stop := math.Inf(-1)
		if step >= opt.Stop.MinShots {
			stop = logSumExp(fine) + (inner(query, m.get("stop.vector"))/opt.Temperature+m.get("stop.bias")[0])/m.temperature
		}
		fine = append(fine, stop)
	}
	return fine
}

// features is the term of candidate j, as FeatureOptions documents it.
func (m *plainModel) features(j int) float64 {
	if m.pool == nil {
		return 0
	}
	l, s := m.p.features, m.p.opt.Features.Scaling
	scaledRow := func(rows []float64, columns, from int) []float64 {
		var x []float64
		for c, v := range rows[j*columns : (j+1)*columns] {
			x = append(x, float64(float32((v-s.Mean[from+c])/s.Scale[from+c])))
		}
		return x
	}
	hidden := m.linear("features.in.weight", "features.in.bias", scaledRow(l.Describe(m.pool), l.Columns(), 0))
	if n := l.BesideColumns(); n > 0 && len(m.chosen) > 0 {
		mean := make([]float64, n)
		for _, i := range m.chosen {
			for c, v := range scaledRow(l.Beside(m.pool, int(i)), n, l.Columns()) {
				mean[c] += v / float64(len(m.chosen))
			}
		}
		hidden = add(hidden, m.linear("features.chosen.weight", "features.chosen.bias", mean))
	}
	for i, v := range hidden {
		hidden[i] = v * 0.5 * (1 + math.Erf(v/math.Sqrt2))
	}
	return inner(m.get("features.out.weight"), hidden)
}

func (m *plainModel) head(s, g []float64) float64 {
	switch m.p.opt.Head {
	case "bilinear":
		h, w, sum := len(s), m.get("head.weight"), 0.0
		for i := range h {
			for j := range h {
				sum += s[i] * w[i*h+j] * g[j]
			}
		}
		return sum
	case "additive":
		hidden := add(m.linear("head.query.weight", "", s), m.linear("head.candidate.weight", "", g))
		for i, b := range m.get("head.bias") {
			hidden[i] = math.Tanh(hidden[i]/math.Sqrt(float64(len(s))) + b)
		}
		return inner(m.get("head.score.weight"), hidden) / math.Sqrt(float64(len(s)))
	}
	return inner(s, g)
}

// topics is the topic distribution of a unit vector.
func (m *plainModel) topics(g []float64) []float64 {
	prototypes, h := m.get("diversity.prototypes"), len(g)
	z := make([]float64, m.p.opt.Diversity.Prototypes)
	for t := range z {
		z[t] = inner(g, unit(prototypes[t*h:(t+1)*h])) / m.p.opt.Temperature
	}
	lse := logSumExp(z)
	for t := range z {
		z[t] = math.Exp(z[t] - lse)
	}
	return z
}

// diversity is the term of candidate j, in units of cosines.
func (m *plainModel) diversity(j int) float64 {
	switch m.p.opt.Diversity.Kind {
	case "mmr":
		if len(m.chosen) == 0 {
			return 0
		}
		most := math.Inf(-1)
		for _, i := range m.chosen {
			most = math.Max(most, inner(m.g[i], m.g[j]))
		}
		weight := m.get("diversity.weight")
		return -math.Max(weight[min(len(m.chosen), m.p.opt.DistinctSteps)-1], 0) * most
	case "coverage":
		needs := m.linear("diversity.needs.weight", "diversity.needs.bias", m.s0)
		gain := 0.0
		for t, pi := range m.topics(m.g[j]) {
			open := 1.0
			for _, i := range m.chosen {
				open *= 1 - m.topics(m.g[i])[t]
			}
			gain += open * pi / (1 + math.Exp(-needs[t]))
		}
		return m.get("diversity.weight")[0] * gain
	case "logdet": // two determinants
		if len(m.chosen) == 0 {
			return 0
		}
		if slices.Contains(m.chosen, int64(j)) {
			return 0 // excluded anyway
		}
		return m.get("diversity.weight")[0] * (m.logDet(append(slices.Clone(m.chosen), int64(j))) - m.logDet(m.chosen))
	}
	return 0
}

// logDet is log det(G Gᵀ + ε·1) by Gaussian elimination.
func (m *plainModel) logDet(set []int64) float64 {
	a := make([][]float64, len(set))
	for x, i := range set {
		for y, j := range set {
			a[x] = append(a[x], inner(m.g[i], m.g[j]))
			if x == y {
				a[x][y] += m.p.opt.Diversity.Ridge
			}
		}
	}
	sum := 0.0
	for x := range a {
		sum += math.Log(a[x][x])
		for y := x + 1; y < len(a); y++ {
			f := a[y][x] / a[x][x]
			for z := x; z < len(a); z++ {
				a[y][z] -= f * a[x][z]
			}
		}
	}
	return sum
}

// readPrefix is the state behind the chosen, as TransformerOptions documents it: each row from those before it.
func (m *plainModel) readPrefix(chosen []int64) []float64 {
	h, o := m.p.opt.HiddenDim, m.p.opt.Transformer
	x := [][]float64{m.s0}
	for _, a := range chosen {
		x = append(x, m.g[a])
	}
	for i := range x {
		row := min(i, m.p.opt.DistinctSteps-1)
		x[i] = add(x[i], m.get("state_transformer.positions")[row*h:(row+1)*h])
	}
	for l := range o.Layers {
		pre := fmt.Sprintf("state_transformer.%d.", l)
		normed, out := make([][]float64, len(x)), make([][]float64, len(x))
		for i := range x {
			normed[i] = m.norm(pre+"norm1.", x[i])
		}
		for i := range x {
			y := m.attention(normed[i], normed[:i+1], o.Heads, pre+"self_attn.in_proj_weight", pre+"self_attn.in_proj_bias")
			y = add(x[i], m.linear(pre+"self_attn.out_proj.weight", pre+"self_attn.out_proj.bias", y))
			hidden := m.linear(pre+"linear1.weight", pre+"linear1.bias", m.norm(pre+"norm2.", y))
			for k, v := range hidden {
				hidden[k] = v * 0.5 * (1 + math.Erf(v/math.Sqrt2))
			}
			out[i] = add(y, m.linear(pre+"linear2.weight", pre+"linear2.bias", hidden))
		}
		x = out
	}
	return unit(add(m.s0, m.linear("state_transformer.out.weight", "", m.norm("state_transformer.norm.", x[len(x)-1]))))
}

// choose moves the state.
func (m *plainModel) choose(a int64) {
	step := len(m.chosen)
	m.chosen = append(slices.Clone(m.chosen), a)
	if m.g == nil {
		return
	}
	e, h := m.g[a], m.p.opt.HiddenDim
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	next := make([]float64, h)
	switch m.p.opt.StateUpdate {
	case "none":
		return
	case "gate":
		for i, z := range m.linear("query_update_gate.weight", "query_update_gate.bias", append(slices.Clone(m.s), e...)) {
			next[i] = sigmoid(z)*m.s[i] + (1-sigmoid(z))*e[i]
		}
	case "scalar_gate":
		z := sigmoid(m.linear("scalar_update_gate.weight", "scalar_update_gate.bias", append(slices.Clone(m.s), e...))[0])
		for i := range next {
			next[i] = z*m.s[i] + (1-z)*e[i]
		}
	case "transformer":
		m.s = m.readPrefix(m.chosen)
		return
	case "gru":
		row := min(step, m.p.opt.DistinctSteps-1)
		x := m.linear("state_gru.weight_ih", "state_gru.bias_ih", add(e, m.get("step_embedding.weight")[row*h:(row+1)*h]))
		was := m.linear("state_gru.weight_hh", "state_gru.bias_hh", m.hidden)
		for i := range next {
			r, z := sigmoid(x[i]+was[i]), sigmoid(x[h+i]+was[h+i])
			next[i] = (1-z)*math.Tanh(x[2*h+i]+r*was[2*h+i]) + z*m.hidden[i]
		}
		m.hidden = next
	}
	m.s = unit(next)
}

// plainRelation scores the pool with the relation of the raw embeddings, as its options document it.
func plainRelation(p *Policy, src *Source, q int) []float64 {
	pool := src.set.Pool(q)
	out := make([]float64, len(pool))
	o := p.opt.Relation
	divided := func(row int32) []float64 {
		v := widen(src.set.Table.Row(int(row)))
		for i := range v {
			v[i] /= *o.RowLength
		}
		return v
	}
	x := divided(src.set.Row(q))
	d := len(x)
	layer := func(name string, v []float64) []float64 {
		s := p.params.Shape(name + ".weight")
		y := matvec(p.params.Get(name+".weight").Floats(), s[0], s[1], v)
		for i, b := range p.params.Get(name + ".bias").Floats() {
			y[i] += b
		}
		return y
	}
	relu := func(v []float64) []float64 {
		for i := range v {
			v[i] = math.Max(v[i], 0)
		}
		return v
	}
	z := make([]float64, d)
	if o.Bilinear != "none" {
		w := p.params.Get("relation.bilinear.weight").Floats()
		for i := range d {
			for j := range d {
				wij := w[i*d+j]
				if o.Bilinear == "symmetric" {
					wij = (w[i*d+j] + w[j*d+i]) / 2
				}
				z[j] += x[i] * wij
			}
		}
	}
	if o.GateDim > 0 {
		for i, v := range layer("relation.gate_out", relu(layer("relation.gate_in", x))) {
			z[i] += x[i] * v
		}
	}
	for j, row := range pool {
		c := divided(row)
		out[j] = inner(c, z)
		if o.ProductDim > 0 {
			prod := make([]float64, d)
			for i := range d {
				prod[i] = math.Sqrt(float64(d)) * x[i] * c[i]
			}
			out[j] += layer("relation.product_out", relu(layer("relation.product_in", prod)))[0]
		}
		out[j] *= *o.Scale
	}
	return out
}

func widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

func matvec(w []float64, rows, cols int, x []float64) []float64 {
	out := make([]float64, rows)
	for i := range out {
		out[i] = inner(w[i*cols:(i+1)*cols], x)
	}
	return out
}

func inner(a, b []float64) float64 {
	s := 0.0
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

func unit(v []float64) []float64 {
	n := math.Max(math.Sqrt(inner(v, v)), 1e-12)
	out := make([]float64, len(v))
	for i := range v {
		out[i] = v[i] / n
	}
	return out
}

func logSumExp(x []float64) float64 {
	m := math.Inf(-1)
	for _, v := range x {
		m = math.Max(m, v)
	}
	s := 0.0
	for _, v := range x {
		s += math.Exp(v - m)
	}
	return m + math.Log(s)
}

func add(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}
