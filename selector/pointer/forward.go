package pointer

import (
	"math"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// impossible is the logit of padding and of excluded examples: its probability is exactly 0 in float32,
// and unlike -inf it makes no NaN in p·log p.
const impossible = -1e9

// encoded is a batch after the encoder: what every step of every candidate shares.
type encoded struct {
	state torchx.Tensor // [B, 1, h] unit query state before the first choice; no tensor without the encoder
	unit  torchx.Tensor // [U, h] unit candidate vectors
	cand  torchx.Tensor // [B, K, h] the same for each query; [K, h] where the pool is shared
	skip  torchx.Tensor // [B, 1, K] scaled cosine and relation; no tensor without the skip term
	base  torchx.Tensor // [B, 1, K] 0, or impossible at padding; no tensor when nothing is padded
}

// dropout applies training-time dropout; the zero value does nothing.
type dropout struct {
	gen              *torchx.Generator
	hidden, attnRate float64
}

func (d dropout) on(x torchx.Tensor, rate float64) torchx.Tensor {
	if d.gen == nil || rate == 0 {
		return x
	}
	return d.gen.Dropout(x, rate)
}

// encode runs the query and pool encoder (parity spec §4, steps 1-3).
func (p *Policy) encode(in *inputs, drop dropout) encoded {
	var e encoded
	if p.opt.Skip.Enabled {
		skip := torchx.Mul(in.cos, torchx.Scale(p.params.Get("skip_scale"), p.opt.Skip.Scale)) // [B, K]
		if p.opt.Relation.enabled() {
			skip = torchx.Add(skip, p.relation(in))
		}
		e.skip = torchx.Unsqueeze(skip, 1)
	}
	if !in.padding.Nil() {
		zero := torchx.FullLike(in.rows, 0, p.dtype, in.b, in.k)
		e.base = torchx.Unsqueeze(torchx.MaskedFill(zero, in.padding, impossible), 1)
	}
	if p.opt.Encoder == "attention" {
		p.attend(in, drop, &e)
	}
	return e
}

// attend runs the cross-attention encoder: the query's state and the candidates' vectors. The attention's
// key and value projections are folded into the single query vector: q·(Wk c) = (Wkᵀ q)·c and
// Σ a (Wv c) = Wv (Σ a c), so no key or value is ever made. The key bias shifts all scores of a head
// equally and drops out.
func (p *Policy) attend(in *inputs, drop dropout, e *encoded) {
	rows := in.rows // [U+B, d]
	if p.params.Has("input_proj.weight") {
		rows = torchx.Linear(rows, p.params.Get("input_proj.weight"), torchx.Tensor{}) // [U+B, h]
	}
	x := torchx.Narrow(rows, 0, in.u, in.b) // [B, h]
	rows = torchx.Narrow(rows, 0, 0, in.u)  // [U, h]
	if p.opt.NumLayers > 0 {
		c := in.spread(rows) // [B, K, h] or [K, h]
		for l := range p.opt.NumLayers {
			x = p.attention(p.layer(l), in, drop, x, c)
		}
	}
	x = drop.on(x, drop.hidden)
	rows = drop.on(rows, drop.hidden) // one mask for a candidate that several queries share
	e.state = torchx.Unsqueeze(torchx.Normalize(torchx.Linear(x, p.params.Get("query_proj.weight"), torchx.Tensor{})), 1)
	e.unit = torchx.Normalize(torchx.Linear(rows, p.params.Get("cand_proj.weight"), torchx.Tensor{}))
	e.cand = in.spread(e.unit)
}

// attention is one layer: multi-head attention of the query x [B, h] over candidates c, residual, norm.
func (p *Policy) attention(w layer, in *inputs, drop dropout, x, c torchx.Tensor) torchx.Tensor {
	h, heads := p.opt.HiddenDim, p.opt.NumHeads
	dh := h / heads
	u := torchx.Linear(x, w.wq, w.bq) // [B, h]
	if heads == 1 {
		u = torchx.Unsqueeze(torchx.LinearT(u, w.wk), 1) // [B, 1, h]
	} else {
		u = torchx.Transpose(torchx.Reshape(u, in.b, heads, dh), 0, 1)                   // [H, B, dh]
		u = torchx.Transpose(torchx.MatMul(u, torchx.Reshape(w.wk, heads, dh, h)), 0, 1) // [B, H, h]
	}
	score := products(torchx.Scale(u, 1/math.Sqrt(float64(dh))), c) // [B, H, K]
	if !in.padding.Nil() {
		score = torchx.MaskedFill(score, torchx.Unsqueeze(in.padding, 1), impossible)
	}
	a := drop.on(torchx.Softmax(score, -1), drop.attnRate) // [B, H, K]
	ctx := torchx.MatMul(a, c)                             // [B, H, h]
	bv := w.bv
	if drop.gen != nil && drop.attnRate > 0 { // dropped weights no longer sum to one
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

// logits scores the pool for states [B, N, h]: cosine / temperature, plus the skip term → [B, N, K].
// Without the encoder there is no state, and N is 1.
func (p *Policy) logits(e encoded, state torchx.Tensor, temperature float64) torchx.Tensor {
	var score torchx.Tensor
	if p.opt.Encoder == "attention" {
		score = products(torchx.Scale(state, 1/(p.opt.Temperature*temperature)), e.cand)
		if p.opt.Skip.Enabled {
			score = torchx.Add(torchx.Mul(score, p.params.Get("learned_scale")), scaled(e.skip, temperature))
		}
	} else {
		score = scaled(e.skip, temperature)
	}
	if !e.base.Nil() {
		score = torchx.Add(score, e.base)
	}
	return score
}

func scaled(x torchx.Tensor, temperature float64) torchx.Tensor {
	if temperature == 1 {
		return x
	}
	return torchx.Scale(x, 1/temperature)
}

// stateful reports whether a choice changes the scores of later ones beyond excluding itself.
func (p *Policy) stateful() bool { return p.opt.Encoder == "attention" && p.opt.StateUpdate == "gate" }

// advance is the state [B, N, h] after choosing action [B, N] (int64) in state [B, N or 1, h] (spec §4, step 4).
func (p *Policy) advance(in *inputs, e encoded, state, action torchx.Tensor) torchx.Tensor {
	h := p.opt.HiddenDim
	chosen := torchx.Embedding(e.unit, in.rowsOf(action)) // [B, N, h]
	gate := torchx.Sigmoid(torchx.Add(
		torchx.Linear(state, p.params.Part("query_update_gate.weight", 1, 0, h), p.params.Get("query_update_gate.bias")),
		torchx.Linear(chosen, p.params.Part("query_update_gate.weight", 1, h, h), torchx.Tensor{})))
	return torchx.Normalize(torchx.Add(chosen, torchx.Mul(gate, torchx.Sub(state, chosen)))) // gate·s + (1-gate)·e
}

// taken is the logit of an example chosen before.
func (p *Policy) taken() float64 {
	if p.opt.Taken == "minus_100" {
		return -100
	}
	return impossible
}

// Forward returns log π of every scored step of every candidate, teacher-forced (spec §4). The encoder
// runs once a query; the first step is scored once for all its candidates, and all steps together.
func (p *Policy) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	in := p.load(b)
	var drop dropout
	if opt.Train && (p.opt.Dropout > 0 || p.opt.AttnDropout > 0) {
		gen := torchx.NewGenerator(opt.DropoutSeed, p.device)
		defer gen.Free()
		drop = dropout{gen, p.opt.Dropout, p.opt.AttnDropout}
	}
	temperature := opt.Temperature
	if temperature == 0 {
		temperature = 1
	}
	logits := p.teacherForced(in, p.encode(in, drop), temperature) // [B, R, K]
	picked := torchx.PickLogp(logits, in.actions, p.taken(), opt.Reference)
	out := selector.Output{LogP: picked.LogP, Entropy: picked.Entropy, KL: picked.KL} // [B, G, T]
	if !in.mask.Nil() {
		out.LogP = torchx.Mul(out.LogP, in.mask)
	}
	if opt.Rows {
		out.Rows = torchx.RowLogP(logits, in.actions, p.taken())
	}
	if opt.Dist {
		out.Dist = p.distributions(in, logits)
	}
	return out
}

// teacherForced scores the pool before every step of every candidate: [B, R, K] with R = 1 + (T-1)·G rows,
// the first step's, then step by step.
func (p *Policy) teacherForced(in *inputs, e encoded, temperature float64) torchx.Tensor {
	r := 1 + (in.t-1)*in.g
	if !p.stateful() {
		return torchx.Expand(p.logits(e, e.state, temperature), in.b, r, in.k)
	}
	states := []torchx.Tensor{e.state}
	for t := 1; t < in.t; t++ {
		states = append(states, p.advance(in, e, states[t-1], torchx.Squeeze(torchx.Narrow(in.actions, 2, t-1, 1), 2)))
	}
	if len(states) == 1 {
		return p.logits(e, e.state, temperature)
	}
	return p.logits(e, torchx.Cat(1, states...), temperature)
}

// distributions are the log-probabilities of the whole pool at every step [B, G, T, K].
func (p *Policy) distributions(in *inputs, logits torchx.Tensor) torchx.Tensor {
	steps := make([]torchx.Tensor, in.t)
	for t := range in.t {
		var z torchx.Tensor
		if t == 0 {
			z = torchx.Narrow(logits, 1, 0, 1)
		} else {
			z = torchx.ScatterValue(torchx.Narrow(logits, 1, 1+(t-1)*in.g, in.g), 2, torchx.Narrow(in.actions, 2, 0, t), p.taken())
		}
		steps[t] = torchx.Expand(torchx.LogSoftmax(z, -1), in.b, in.g, in.k)
	}
	return torchx.Stack(2, steps...)
}
