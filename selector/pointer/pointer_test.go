package pointer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// scene is a small set with pools of different sizes and random candidates.
func scene(t *testing.T, dim, shots int) *Source {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	const rows = 40
	data := make([]float32, rows*dim)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	queries := make([]beamdata.Query, 6)
	for i := range queries {
		k := 5 + 3*i
		perm := r.Perm(rows - 6)
		pool := make([]int32, k)
		for j := range pool {
			pool[j] = int32(perm[j] + 6)
		}
		q := beamdata.Query{ID: int64(i), Pool: pool}
		for range 2 + i {
			p := r.Perm(k)[:shots]
			pos := make([]int32, shots)
			for s := range pos {
				pos[s] = int32(p[s])
			}
			q.Candidates = append(q.Candidates, pos)
			q.Rewards = append(q.Rewards, r.Float64())
		}
		queries[i] = q
	}
	set, err := beamdata.NewSet("scene", beamdata.NewTable(rows, dim, data), shots, queries, rewardOf{})
	if err != nil {
		t.Fatal(err)
	}
	return NewSource(set)
}

// rewardOf prefers small positions.
type rewardOf struct{}

func (rewardOf) Score(_ int, positions []int32) (float64, float64) {
	s := 0.0
	for _, p := range positions {
		s += 1 / float64(1+p)
	}
	return s, math.NaN()
}

func policy(t *testing.T, opt Options, dim int) *Policy {
	t.Helper()
	torchx.Attach(1)
	p, err := New(opt, dim, 3, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	// away from the initial identity, zeros and ones, so that every parameter matters
	r := rand.New(rand.NewPCG(5, 6))
	v := p.Params().Values()
	for i := range v {
		v[i] += float32(0.1 * r.NormFloat64())
	}
	p.Params().SetValues(v)
	t.Cleanup(p.Free)
	return p
}

func variants() map[string]Options {
	small := DefaultOptions()
	small.HiddenDim = 8
	heads := small
	heads.NumHeads, heads.NumLayers = 2, 3
	skip := small
	skip.Skip = SkipOptions{Enabled: true, Scale: 4, LearnedScale: 0.5}
	compat := small
	compat.Taken = "minus_100"
	none := small
	none.StateUpdate = "none"
	relation := skip
	relation.Relation = RelationOptions{Scale: 3, Bilinear: "free", GateDim: 5, ProductDim: 6, GateInitial: 2}
	only := relation
	only.Encoder, only.Relation.Bilinear = "none", "symmetric"
	square := small // d = h: no input projection
	return map[string]Options{"v3": small, "heads and layers": heads, "skip": skip, "minus_100": compat, "no state update": none, "square": square, "relation": relation, "relation only": only}
}

func width(name string) int {
	if name == "square" {
		return 8
	}
	return 12
}

// TestForwardEqualsThePlainModel compares the folded, shared, padded forward pass with the parity spec's
// text written out one query and one candidate at a time in float64.
func TestForwardEqualsThePlainModel(t *testing.T) {
	for name, opt := range variants() {
		t.Run(name, func(t *testing.T) {
			src := scene(t, width(name), 3)
			p := policy(t, opt, width(name))
			defer torchx.Scope()()
			b := src.Recorded([]int{4, 0, 5, 2})
			for _, dist := range []bool{false, true} {
				out := p.Forward(b, selector.ForwardOptions{Dist: dist, Temperature: 1.3})
				got := out.LogP.Floats()
				for i, q := range b.Queries {
					for g := range b.G {
						if !b.Valid[i*b.G+g] {
							continue
						}
						want := plain(p, src, q, b.Action(i, g), 1.3)
						at := (i*b.G + g) * b.T
						golden.Close(t, got[at:at+b.T], want, 3e-5) // float32 logits of size 10: a few 1e-6 a term
					}
				}
			}
		})
	}
}

// plain is log π of each step of one selection, from the parity spec §4 in float64.
func plain(p *Policy, src *Source, q int, actions []int64, temperature float64) []float64 {
	get := func(name string) ([]float64, []int) {
		return p.params.Get(name).Floats(), p.params.Shape(name)
	}
	mul := func(name string, x []float64) []float64 {
		w, s := get(name)
		return matvec(w, s[0], s[1], x)
	}
	embed := func(row int32) []float64 {
		x := widen(src.set.Table.Row(int(row)))
		if p.params.Has("input_proj.weight") {
			x = mul("input_proj.weight", x)
		}
		return x
	}
	relation := plainRelation(p, src, q)
	if p.opt.Encoder == "none" {
		return plainSteps(p, src, q, actions, temperature, relation, nil, nil)
	}
	h, heads := p.opt.HiddenDim, p.opt.NumHeads
	x := embed(src.set.Row(q))
	var c [][]float64
	for _, row := range src.set.Pool(q) {
		c = append(c, embed(row))
	}
	for l := range p.opt.NumLayers {
		pre := fmt.Sprintf("cross_attn_layers.%d.", l)
		w, _ := get(pre + "in_proj_weight")
		bias, _ := get(pre + "in_proj_bias")
		project := func(part int, v []float64) []float64 {
			y := matvec(w[part*h*h:(part+1)*h*h], h, h, v)
			for i := range y {
				y[i] += bias[part*h+i]
			}
			return y
		}
		query := project(0, x)
		attn := make([]float64, h)
		dh := h / heads
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
					attn[i] += math.Exp(score[j]-lse) * v[i]
				}
			}
		}
		attn = mul(pre+"out_proj.weight", attn)
		ob, _ := get(pre + "out_proj.bias")
		nw, _ := get(fmt.Sprintf("attn_norms.%d.weight", l))
		nb, _ := get(fmt.Sprintf("attn_norms.%d.bias", l))
		var m, v float64
		for i := range attn {
			attn[i] += ob[i] + x[i]
			m += attn[i] / float64(h)
		}
		for i := range attn {
			v += (attn[i] - m) * (attn[i] - m) / float64(h)
		}
		x = make([]float64, h)
		for i := range x {
			x[i] = (attn[i]-m)/math.Sqrt(v+1e-5)*nw[i] + nb[i]
		}
	}
	s := unit(mul("query_proj.weight", x))
	g := make([][]float64, len(c))
	for j := range c {
		g[j] = unit(mul("cand_proj.weight", c[j]))
	}
	return plainSteps(p, src, q, actions, temperature, relation, s, g)
}

// plainRelation scores the pool with the relation of the raw embeddings, as its options document it.
func plainRelation(p *Policy, src *Source, q int) []float64 {
	pool := src.set.Pool(q)
	out := make([]float64, len(pool))
	o := p.opt.Relation
	x := widen(src.set.Table.Row(int(src.set.Row(q))))
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
		c := widen(src.set.Table.Row(int(row)))
		out[j] = inner(c, z)
		if o.ProductDim > 0 {
			prod := make([]float64, d)
			for i := range d {
				prod[i] = math.Sqrt(float64(d)) * x[i] * c[i]
			}
			out[j] += layer("relation.product_out", relu(layer("relation.product_in", prod)))[0]
		}
		out[j] *= o.Scale
	}
	return out
}

// plainSteps walks through the choices; s and g are nil without the encoder.
func plainSteps(p *Policy, src *Source, q int, actions []int64, temperature float64, relation, s []float64, g [][]float64) []float64 {
	get := func(name string) ([]float64, []int) { return p.params.Get(name).Floats(), p.params.Shape(name) }
	c := src.set.Pool(q)
	h := p.opt.HiddenDim
	raw := unit(widen(src.set.Table.Row(int(src.set.Row(q)))))
	var out []float64
	taken := map[int64]bool{}
	for _, a := range actions {
		logits := make([]float64, len(c))
		for j := range c {
			if s != nil {
				logits[j] = inner(s, g[j]) / p.opt.Temperature
			}
			if p.opt.Skip.Enabled {
				scale, _ := get("skip_scale")
				if s != nil {
					learned, _ := get("learned_scale")
					logits[j] *= learned[0]
				}
				logits[j] += relation[j] + p.opt.Skip.Scale*scale[0]*inner(raw, unit(widen(src.set.Table.Row(int(src.set.Pool(q)[j])))))
			}
			logits[j] /= temperature
			if taken[int64(j)] {
				logits[j] = -100
				if p.opt.Taken == "excluded" {
					logits[j] = math.Inf(-1)
				}
			}
		}
		out = append(out, logits[a]-logSumExp(logits))
		taken[a] = true
		if s != nil && p.opt.StateUpdate == "gate" {
			w, shape := get("query_update_gate.weight")
			gate := matvec(w, shape[0], shape[1], append(append([]float64{}, s...), g[a]...))
			gb, _ := get("query_update_gate.bias")
			next := make([]float64, h)
			for i := range next {
				z := 1 / (1 + math.Exp(-gate[i]-gb[i]))
				next[i] = z*s[i] + (1-z)*g[a][i]
			}
			s = unit(next)
		}
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

// TestGradientAlongItself: a small step against the gradient lowers the loss as the gradient's norm
// says. float32 allows 1 %; per-operation gradients are checked in float64 in package torchx.
func TestGradientAlongItself(t *testing.T) {
	for name, opt := range variants() {
		t.Run(name, func(t *testing.T) {
			src := scene(t, width(name), 3)
			p := policy(t, opt, width(name))
			defer torchx.Scope()()
			b := src.Recorded([]int{1, 3, 5})
			loss := func() torchx.Tensor {
				return torchx.Neg(torchx.Mean(p.Forward(b, selector.ForwardOptions{}).LogP))
			}
			p.Params().ZeroGrad()
			torchx.Backward(loss())
			norm := p.Params().GradNorm()
			at, grad := p.Params().Values(), p.Params().Grad().Floats()
			move := func(eps float64) float64 {
				v := append([]float32(nil), at...)
				for i := range v {
					v[i] -= float32(eps * grad[i] / norm)
				}
				p.Params().SetValues(v)
				return loss().Item()
			}
			const eps = 3e-3
			slope := (move(-eps) - move(eps)) / (2 * eps)
			if math.Abs(slope-norm) > 0.01*norm {
				t.Errorf("slope along the gradient %g, want its norm %g", slope, norm)
			}
		})
	}
}

// TestStartIsSimilarity: with the skip term, learned_scale 0 and every part of the relation, the greedy
// selection of an untrained selector is exactly similarity top-S.
func TestStartIsSimilarity(t *testing.T) {
	src := scene(t, 12, 2)
	opt := DefaultOptions()
	opt.HiddenDim, opt.Skip.Enabled = 8, true
	opt.Relation = RelationOptions{Scale: 20, Bilinear: "symmetric", GateDim: 4, ProductDim: 4, GateInitial: 5}
	torchx.Attach(1)
	p, err := New(opt, 12, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	queries := []int{0, 1, 2, 3, 4, 5}
	want := beamdata.Similarity(src.set, 4)
	b, _ := p.Decode(src, queries, 4, 1)
	for i := range queries {
		for s, a := range b.Action(i, 0) {
			if int32(a) != want[i][s] {
				t.Errorf("query %d: selected %v, similarity selects %v", i, b.Action(i, 0), want[i])
				break
			}
		}
	}
}

// TestBatchEqualsOneByOne: padding and sharing change nothing but rounding.
func TestBatchEqualsOneByOne(t *testing.T) {
	src := scene(t, 12, 3)
	p := policy(t, variants()["skip"], 12)
	defer torchx.Scope()()
	all := src.Recorded([]int{0, 1, 2, 3, 4, 5})
	together := p.Forward(all, selector.ForwardOptions{}).LogP.Floats()
	for q := range 6 {
		one := src.Recorded([]int{q})
		got := p.Forward(one, selector.ForwardOptions{}).LogP.Floats()
		for g := range src.set.NumCandidates(q) {
			at := (q*all.G + g) * all.T
			golden.Close(t, got[g*one.T:(g+1)*one.T], together[at:at+all.T], 1e-5)
		}
	}
}

// TestBeamSearchIsExhaustiveWhenWide: a beam as wide as the pool squared finds the best pair, its score
// is the policy's own log-probability, and width 1 is greedy.
func TestBeamSearchIsExhaustiveWhenWide(t *testing.T) {
	src := scene(t, 12, 2)
	p := policy(t, variants()["v3"], 12)
	defer torchx.Scope()()
	const q = 1
	k := len(src.set.Pool(q))
	b, scores := p.Decode(src, []int{q}, 2, k*(k-1))
	best, bestPair := math.Inf(-1), [2]int64{}
	for i := range k {
		for j := range k {
			if i == j {
				continue
			}
			pair := []int64{int64(i), int64(j)}
			if lp := plain(p, src, q, pair, 1); lp[0]+lp[1] > best {
				best, bestPair = lp[0]+lp[1], [2]int64{pair[0], pair[1]}
			}
		}
	}
	if got := b.Action(0, 0); got[0] != bestPair[0] || got[1] != bestPair[1] {
		t.Errorf("best beam %v, exhaustive best %v", got, bestPair)
	}
	golden.Close(t, scores[:1], []float64{best}, 3e-5)
	if b.NumValid() != k*(k-1) {
		t.Errorf("%d beams, want all %d ordered pairs", b.NumValid(), k*(k-1))
	}
	greedy, _ := p.Decode(src, []int{q}, 2, 1)
	first := greedy.Action(0, 0)[0]
	for j := range k {
		if plain(p, src, q, []int64{int64(j)}, 1)[0] > plain(p, src, q, []int64{first}, 1)[0]+1e-6 {
			t.Errorf("greedy took %d, %d is more probable", first, j)
		}
	}
}

// TestSamplesFollowThePolicy: frequencies of sampled pairs agree with the policy's probabilities (χ²).
func TestSamplesFollowThePolicy(t *testing.T) {
	src := scene(t, 12, 2)
	p := policy(t, variants()["v3"], 12)
	const q, n = 0, 20000
	b := p.Sample(src, []int{q}, n, 2, 1.7, 11)
	counts := map[[2]int64]float64{}
	for g := range n {
		a := b.Action(0, g)
		if a[0] == a[1] {
			t.Fatal("an example was chosen twice")
		}
		counts[[2]int64{a[0], a[1]}]++
	}
	k, chi, cells := int64(len(src.set.Pool(q))), 0.0, 0
	for i := range k {
		for j := range k {
			if i == j {
				continue
			}
			lp := plain(p, src, q, []int64{i, j}, 1.7)
			want := n * math.Exp(lp[0]+lp[1])
			if want < 5 {
				continue
			}
			chi += (counts[[2]int64{i, j}] - want) * (counts[[2]int64{i, j}] - want) / want
			cells++
		}
	}
	// χ² has mean = cells and standard deviation √(2·cells): 5 of them is one false alarm in a million.
	if limit := float64(cells) + 5*math.Sqrt(2*float64(cells)); cells < 10 || chi > limit {
		t.Errorf("χ² = %.1f over %d cells, want at most %.1f", chi, cells, limit)
	}
	again := p.Sample(src, []int{q}, n, 2, 1.7, 11)
	for i := range b.Actions {
		if b.Actions[i] != again.Actions[i] {
			t.Fatal("equal seeds gave different samples")
		}
	}
}

// TestDropoutOnlyInTraining: evaluation is deterministic, training is not, and its masks follow the seed.
func TestDropoutOnlyInTraining(t *testing.T) {
	src := scene(t, 12, 2)
	opt := variants()["v3"]
	opt.Dropout, opt.AttnDropout = 0.5, 0.1
	p := policy(t, opt, 12)
	defer torchx.Scope()()
	b := src.Recorded([]int{2, 3})
	run := func(train bool, seed uint64) []float64 {
		return p.Forward(b, selector.ForwardOptions{Train: train, DropoutSeed: seed}).LogP.Floats()
	}
	same := func(a, b []float64) bool {
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return true
	}
	if !same(run(false, 1), run(false, 2)) {
		t.Error("evaluation depends on the dropout seed")
	}
	if !same(run(true, 1), run(true, 1)) || same(run(true, 1), run(true, 2)) || same(run(true, 1), run(false, 1)) {
		t.Error("training dropout does not follow its seed")
	}
}

// TestOldLogProbsOfTheReference loads the reference's own checkpoint, embeddings and beams and compares
// the log-probabilities it recorded (parity pack, scenarios with pools of their own).
func TestOldLogProbsOfTheReference(t *testing.T) {
	for _, tc := range []struct {
		scenario, init string
		heads          int
	}{
		{"b_rl_hard_plus_soft", "L1/init.pt", 1},
		{"b_rl_hard_plus_soft", "L1/init.ckpt", 1},
		{"c_layers3", "L3/init.pt", 1},
		{"e_shots4_heads4_fixed", "L1/init.pt", 4},
	} {
		t.Run(tc.scenario+" "+filepath.Base(tc.init), func(t *testing.T) {
			var want struct {
				Config struct {
					Files map[string]string `json:"files"`
				} `json:"config"`
				Old []any `json:"old_log_probs"`
			}
			golden.JSON(t, golden.Shared(t, "parity", "scenarios", tc.scenario, "expected.json"), &want)
			opt := beamdata.DefaultOptions()
			opt.Name = "beams"
			beams, emb := golden.Shared(t, "parity", want.Config.Files["beams"]), golden.Shared(t, "parity", want.Config.Files["emb"])
			opt.Beams, opt.Embeddings, opt.TrainRatio = &beams, &emb, 1
			bundle, err := beamdata.Load(opt)
			if err != nil {
				t.Fatal(err)
			}
			set := bundle.RCE
			sel := DefaultOptions()
			sel.NumHeads, sel.Taken = tc.heads, "minus_100"
			torchx.Attach(1)
			p, err := Open(golden.Shared(t, "parity", "inits", tc.init), OpenOptions{Options: sel, Dim: set.Table.Dim, Device: "cpu", Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Free()
			index := map[int64]int{}
			for i, id := range set.IDs {
				index[id] = i
			}
			src, seen := NewSource(set), 0
			for _, entry := range want.Old {
				pair := entry.([]any)
				q, ok := index[int64(pair[0].(float64))]
				if !ok {
					t.Fatalf("query %v was not loaded", pair[0])
				}
				func() {
					defer torchx.Scope()()
					got := torchx.Sum(p.Forward(src.Recorded([]int{q}), selector.ForwardOptions{}).LogP, 2).Floats()
					var beams []float64
					for _, x := range pair[1].([]any) {
						beams = append(beams, x.(float64))
					}
					golden.Close(t, got, beams, 2e-5) // the pack's tolerance
				}()
				seen++
			}
			if seen < 10 {
				t.Errorf("only %d queries compared", seen)
			}
		})
	}
}
