package pointer

import (
	"cmp"
	"math"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// impossible is the logit of padding and of excluded examples: its probability is exactly 0 in float32,
// and unlike -inf it makes no NaN in p·log p.
const impossible = -1e9

// encoded is a batch after the encoder, shared by all steps of all candidates.
type encoded struct {
	state torchx.Tensor // [B, 1, h] unit query state before the first choice; undefined without the encoder
	unit  torchx.Tensor // [U, h] unit candidate vectors
	pool  torchx.Tensor // [B, K] int64: the rows of unit that are a query's pool; undefined where the pool is shared
	cand  torchx.Tensor // [B, K, h] the same for each query; [K, h] where the pool is shared; undefined where scores reads unit
	from  torchx.Pool   // where scores finds the candidates
	skip  torchx.Tensor // [B, 1, K] scaled cosine and relation; undefined without the skip term
	base  torchx.Tensor // [B, 1, K] 0, or impossible at padding; undefined when nothing is padded

	in        *inputs
	described torchx.Tensor // [B, 1, K, m] the features' hidden layer before any choice; undefined without features

	keys          torchx.Tensor // like cand: the additive head's keys
	topics, needs torchx.Tensor // [B, K, M] or [K, M], [B, 1, M] (coverage)
	coarse, top   torchx.Tensor // [B, 1, K] coarse logits, and bool: among the top M (coarse-to-fine)
}

// perQuery gathers every query's candidates: [U, n] → [B, K, n]; with a shared pool it returns [K, n] unchanged.
func (e encoded) perQuery(x torchx.Tensor) torchx.Tensor {
	if e.pool.Nil() {
		return x
	}
	return torchx.Embedding(x, e.pool)
}

// scores multiplies vectors x [B, N, h] with the unit vectors of the candidates: [B, N, K].
func (e encoded) scores(x torchx.Tensor) torchx.Tensor {
	if e.cand.Nil() {
		return torchx.PoolScore(x, e.unit, e.from)
	}
	return products(x, e.cand)
}

// vector returns the unit vectors [B, N, h] of the candidates at positions [B, N] of their pools.
func (e encoded) vector(position torchx.Tensor) torchx.Tensor {
	if !e.pool.Nil() {
		position = torchx.Gather(e.pool, 1, position)
	}
	return torchx.Embedding(e.unit, position)
}

// encode runs the query and pool encoder (parity spec §4, steps 1-3).
func (p *Policy) encode(in *inputs, drop dropout) encoded {
	e := encoded{pool: in.pool, from: in.places, in: in}
	if p.features != nil {
		x := torchx.Linear(in.features.To(p.dtype), p.params.Get("features.in.weight"), p.params.Get("features.in.bias"))
		e.described = torchx.Unsqueeze(x, 1)
	}
	if p.opt.Skip.Enabled {
		skip := torchx.Mul(in.cos, torchx.Scale(p.params.Get("skip_scale"), p.opt.Skip.Scale)) // [B, K]
		if p.opt.Relation.enabled() {
			skip = torchx.Add(skip, p.relation(in, e))
		}
		e.skip = torchx.Unsqueeze(skip, 1)
	}
	if !in.padding.Nil() {
		zero := torchx.FullLike(in.rows, 0, p.dtype, in.b, in.k)
		e.base = torchx.Unsqueeze(torchx.MaskedFill(zero, in.padding, impossible), 1)
	}
	if p.opt.encodes() {
		p.attend(in, drop, &e)
	}
	return e
}

// attend runs the cross-attention encoder: the query's state and the candidates' vectors. The attention's key and value
// projections are folded into the single query vector: q·(Wk c) = (Wkᵀ q)·c and Σ a (Wv c) = Wv (Σ a c), so no key or
// value is ever made. The key bias shifts all scores of a head equally and drops out.
func (p *Policy) attend(in *inputs, drop dropout, e *encoded) {
	rows := in.rows // [U+B, d]
	if p.params.Has("input_proj.weight") {
		rows = torchx.Linear(rows, p.params.Get("input_proj.weight"), torchx.Tensor{}) // [U+B, h]
	}
	rows, x := torchx.Split(rows, 0, in.u) // [U, h], [B, h]
	if p.opt.Coarse.TopM != nil {
		p.coarseStage(in, e, x, rows)
	}
	if p.opt.CandidateEncoder.Layers > 0 {
		rows = p.contextualise(in, drop, e, rows)
	}
	if p.opt.NumLayers > 0 {
		c := rows // [U, h]
		if !in.attends(drop) {
			c = e.perQuery(rows) // [B, K, h] or [K, h]
		}
		for l := range p.opt.NumLayers {
			x = p.attention(l, in, drop, x, c)
		}
	}
	x = drop.rows(x, drop.hidden, "state", 0, in.queries)
	// one mask for a candidate that several queries share
	rows = drop.rows(rows, drop.hidden, "candidate", 0, drop.candidates(in, rows.Shape()[0]))
	e.state = torchx.Unsqueeze(torchx.Normalize(torchx.Linear(x, p.params.Get("query_proj.weight"), torchx.Tensor{})), 1)
	e.unit = torchx.Normalize(torchx.Linear(rows, p.params.Get("cand_proj.weight"), torchx.Tensor{}))
	if !in.kernels || in.pool.Nil() || p.diversity != nil {
		e.cand = e.perQuery(e.unit)
	}
	e.keys = p.headKeys(*e)
	if p.diversity != nil {
		p.diversity.prepare(p, e)
	}
}

// attention applies layer l: multi-head attention of the query x [B, h] over candidates c, residual, norm. c is [B, K, h] or [K, h], or
// [U, h] for the kernel.
func (p *Policy) attention(l int, in *inputs, drop dropout, x, c torchx.Tensor) torchx.Tensor {
	w, h, heads := p.layer(l), p.opt.HiddenDim, p.opt.NumHeads
	dh := h / heads
	u := torchx.Linear(x, w.wq, w.bq) // [B, h]
	if heads == 1 {
		u = torchx.Unsqueeze(torchx.LinearT(u, w.wk), 1) // [B, 1, h]
	} else {
		u = torchx.Transpose(torchx.Reshape(u, in.b, heads, dh), 0, 1)                   // [H, B, dh]
		u = torchx.Transpose(torchx.MatMul(u, torchx.Reshape(w.wk, heads, dh, h)), 0, 1) // [B, H, h]
	}
	var a, ctx torchx.Tensor // [B, H, K], [B, H, h]
	if scale := 1 / math.Sqrt(float64(dh)); in.attends(drop) {
		ctx = torchx.PoolAttend(u, c, in.places, scale)
	} else {
		score := products(torchx.Scale(u, scale), c) // [B, H, K]
		if !in.padding.Nil() {
			score = torchx.MaskedFill(score, torchx.Unsqueeze(in.padding, 1), impossible)
		}
		a = drop.overPool(torchx.Softmax(score, -1), l, in)
		ctx = torchx.MatMul(a, c)
	}
	bv := w.bv
	if drop.attn > 0 { // dropped weights no longer sum to one
		bv = torchx.Reshape(torchx.Mul(torchx.Reshape(bv, 1, heads, dh), torchx.SumKeep(a, 2)), in.b, h)
	}
	var v torchx.Tensor // [B, h]
	if heads == 1 {
		v = torchx.Linear(torchx.Squeeze(ctx, 1), w.wv, torchx.Tensor{})
	} else {
		wv := torchx.Transpose(torchx.Reshape(w.wv, heads, dh, h), 1, 2)           // [H, h, dh]
		v = torchx.Transpose(torchx.MatMul(torchx.Transpose(ctx, 0, 1), wv), 0, 1) // [B, H, dh]
		v = torchx.Reshape(v, in.b, h)
	}
	attn := torchx.Linear(torchx.Add(v, bv), w.outWeight, w.outBias) // [B, h]
	return torchx.LayerNorm(torchx.Add(attn, x), w.normWeight, w.normBias, 1e-5)
}

// score returns the logits of all actions [B, R, A] in the rows r, one cursor a step. All steps are one product. It excludes taken
// candidates only if other logits depend on them; PickLogp and rows.exclude do so for all.
func (p *Policy) score(e encoded, r rows, cursors []cursor, temperature float64) torchx.Tensor {
	query := p.queries(cursors)
	z := r.repeated(p.logits(e, query, temperature)) // [B, R, K]
	if p.features != nil {
		z = torchx.Add(z, scaled(r.repeated(torchx.Cat(1, p.featureScores(e, cursors)...)), temperature))
	}
	if p.diversity != nil {
		z = p.diversify(e, r, cursors, z, temperature)
	}
	if p.opt.Coarse.TopM == nil && !p.opt.Stop.Enabled {
		return z
	}
	z = r.exclude(z, p.taken())
	if p.opt.Coarse.TopM != nil {
		z = p.coarseToFine(e, r, z, temperature)
	}
	if p.opt.Stop.Enabled {
		z = p.withStop(r, query, z, temperature)
	}
	return z
}

// queries joins the vectors that score the pool at each step: [B, R, h]; [B, steps, h] if only the step changes them; [B, 1, h]
// if nothing does.
func (p *Policy) queries(cursors []cursor) torchx.Tensor {
	slots := p.opt.Decoder == "slots"
	if !p.stateful() && !slots {
		return cursors[0].state
	}
	states := make([]torchx.Tensor, len(cursors))
	for t, c := range cursors {
		if states[t] = c.state; slots {
			states[t] = p.slot(c)
		}
	}
	if len(states) == 1 {
		return states[0]
	}
	return torchx.Cat(1, states...)
}

// diversify adds the diversity term to the scores z [B, R, K].
func (p *Policy) diversify(e encoded, r rows, cursors []cursor, z torchx.Tensor, temperature float64) torchx.Tensor {
	terms := make([]torchx.Tensor, len(cursors))
	for i, c := range cursors {
		terms[i] = p.diversity.bonus(p, e, c.memory, c.step) // [B, N, K]
		if terms[i].Nil() {
			shape := z.Shape()
			terms[i] = torchx.FullLike(z, 0, p.dtype, shape[0], 1, shape[2])
		}
	}
	return torchx.Add(z, torchx.Scale(torchx.Cat(1, terms...), 1/(p.opt.Temperature*temperature)))
}

// logits scores the pool for queries [B, N, h] → [B, N, K]. Without the encoder query is undefined and N is 1.
func (p *Policy) logits(e encoded, query torchx.Tensor, temperature float64) torchx.Tensor {
	var z torchx.Tensor
	switch {
	case p.opt.encodes():
		z = p.head(e, query, 1/(p.opt.Temperature*temperature))
		if p.opt.Skip.Enabled {
			z = torchx.Add(torchx.Mul(z, p.params.Get("learned_scale")), scaled(e.skip, temperature))
		}
	case p.opt.Skip.Enabled:
		z = scaled(e.skip, temperature)
	default: // features alone
		z = torchx.FullLike(e.described, 0, p.dtype, e.in.b, 1, e.in.k)
	}
	if !e.base.Nil() {
		z = torchx.Add(z, e.base)
	}
	return z
}

func scaled(x torchx.Tensor, temperature float64) torchx.Tensor {
	if temperature == 1 {
		return x
	}
	return torchx.Scale(x, 1/temperature)
}

// taken returns the logit of an example chosen before.
func (p *Policy) taken() float64 {
	if p.opt.Taken == "minus_100" {
		return -100
	}
	return impossible
}

// Forward returns log π of every scored step of every candidate, teacher-forced (spec §4). The encoder
// runs once a query; the first step is scored once for all its candidates, and all steps together.
func (p *Policy) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	var up torchx.Upload
	forward := p.Stage(b, &up)
	up.Send(p.params.Flat())
	return forward(opt)
}

func (p *Policy) Stage(b *selector.Batch, up *torchx.Upload) (forward func(selector.ForwardOptions) selector.Output) {
	in := p.stage(b, up)
	return func(opt selector.ForwardOptions) selector.Output {
		p.arrived(in, opt)
		return p.forward(in, opt)
	}
}

func (p *Policy) Eager(opt selector.ForwardOptions) string {
	switch {
	case p.clip != nil:
		return "selector.clip reads pictures and texts in each step"
	case p.opt.CandidateEncoder.Layers > 0:
		return "selector.candidate_layers takes the candidates' places from the host"
	case p.opt.StateUpdate == transformerState:
		return "selector.state_update=transformer takes its causal mask from the host"
	case p.diversity != nil:
		return "the determinants of selector.diversity may wait for the device"
	case p.opt.Coarse.TopM != nil:
		return "the sorting of selector.coarse_top_m may wait for the device"
	case opt.Train && (p.opt.Dropout > 0 || p.opt.AttnDropout > 0):
		return "the masks of selector.dropout come from the host"
	}
	return ""
}

func (p *Policy) forward(in *inputs, opt selector.ForwardOptions) selector.Output {
	var drop dropout
	if opt.Train {
		drop = dropout{policy: p, seed: opt.DropoutSeed, hidden: p.opt.Dropout, attn: p.opt.AttnDropout}
	}
	temperature := cmp.Or(opt.Temperature, 1)
	e, r := p.encode(in, drop), rows{0, in.t - 1, in.g, in.chosen}
	var logits torchx.Tensor // [B, R, A], R = 1 + (T-1)·G
	if in.first.Nil() {
		logits = p.score(e, r, p.teacherForced(in, e, in.chosen), temperature)
	} else {
		z := p.score(e, rows{0, 1, in.k, in.first}, p.teacherForced(in, e, in.first), temperature) // [B, 1+K, A]
		z = torchx.Reshape(z, in.b*(1+in.k), z.Shape()[2])
		logits = torchx.Reshape(torchx.Embedding(z, in.row), in.b, 1+in.g, z.Shape()[1])
	}
	picked := torchx.PickLogp(logits, in.actions, p.taken(), opt.Reference)
	out := selector.Output{LogP: picked.LogP, Entropy: picked.Entropy, KL: picked.KL} // [B, G, T]
	if !in.mask.Nil() {
		out.LogP = torchx.Mul(out.LogP, in.mask)
	}
	if opt.Dist {
		out.Dist = p.distributions(in, r, logits)
	}
	return out
}

// teacherForced walks along selections chosen [B, N, ≥ T-1] and returns the cursor before each of their T steps.
func (p *Policy) teacherForced(in *inputs, e encoded, chosen torchx.Tensor) []cursor {
	cursors := []cursor{p.start(e)}
	for t := 1; t < in.t; t++ {
		cursors = append(cursors, p.advance(e, cursors[t-1], torchx.Squeeze(torchx.Narrow(chosen, 2, t-1, 1), 2)))
	}
	return cursors
}

// distributions returns the log-probabilities of all actions at every step [B, G, T, A].
func (p *Policy) distributions(in *inputs, r rows, logits torchx.Tensor) torchx.Tensor {
	steps := r.excluded(logits, p.taken())
	for t, z := range steps {
		steps[t] = torchx.Expand(torchx.LogSoftmax(z, -1), in.b, in.g, -1)
	}
	return torchx.Stack(2, steps...)
}
