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
	state torchx.Tensor // [B, h] unit query state before the first choice
	cand  torchx.Tensor // [B, K, h] unit candidate vectors
	skip  torchx.Tensor // [B, K] scaled cosine and relation; no tensor without the skip term
	base  torchx.Tensor // [B, K] 0, or impossible at padding; no tensor when nothing is padded
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

// encode runs the query and pool encoder (parity spec §4, steps 1-3), with the attention's key and value
// projections folded into the single query vector: q·(Wk c) = (Wkᵀ q)·c and Σ a (Wv c) = Wv (Σ a c), so
// no key or value is ever made. The key bias shifts all scores of a head equally and drops out.
func (p *Policy) encode(in *inputs, drop dropout) encoded {
	var e encoded
	if p.opt.Skip.Enabled {
		e.skip = torchx.Mul(in.cos, torchx.Scale(p.params.Get("skip_scale"), p.opt.Skip.Scale)) // [B, K]
		if p.opt.Relation.enabled() {
			e.skip = torchx.Add(e.skip, p.relation(in))
		}
	}
	if !in.padding.Nil() {
		e.base = torchx.MaskedFill(torchx.FullLike(in.rows, 0, torchx.Float32, in.b, in.k), in.padding, impossible)
	}
	if p.opt.Encoder == "attention" {
		p.attend(in, drop, &e)
	}
	return e
}

// attend runs the cross-attention encoder: the query's state and the candidates' vectors.
func (p *Policy) attend(in *inputs, drop dropout, e *encoded) {
	h, heads := p.opt.HiddenDim, p.opt.NumHeads
	dh := h / heads
	rows := in.rows // [U, d]
	if p.params.Has("input_proj.weight") {
		rows = torchx.Linear(rows, p.params.Get("input_proj.weight"), torchx.Tensor{}) // [U, h]
	}
	c := torchx.Embedding(rows, in.pool)  // [B, K, h]
	x := torchx.Embedding(rows, in.query) // [B, h]
	for l := range p.opt.NumLayers {
		w := p.layer(l)
		q := torchx.Linear(x, torchx.Narrow(w.inWeight, 0, 0, h), torchx.Narrow(w.inBias, 0, 0, h)) // [B, h]
		wk := torchx.Reshape(torchx.Narrow(w.inWeight, 0, h, h), heads, dh, h)
		wv := torchx.Reshape(torchx.Narrow(w.inWeight, 0, 2*h, h), heads, dh, h)
		q = torchx.Transpose(torchx.Reshape(q, in.b, heads, dh), 0, 1)                            // [H, B, dh]
		u := torchx.Scale(torchx.Transpose(torchx.MatMul(q, wk), 0, 1), 1/math.Sqrt(float64(dh))) // [B, H, h]
		score := torchx.MatMul(u, torchx.Transpose(c, 1, 2))                                      // [B, H, K]
		if !in.padding.Nil() {
			score = torchx.MaskedFill(score, torchx.Unsqueeze(in.padding, 1), impossible)
		}
		a := drop.on(torchx.Softmax(score, -1), drop.attnRate)                      // [B, H, K]
		ctx := torchx.Transpose(torchx.MatMul(a, c), 0, 1)                          // [H, B, h]
		v := torchx.Transpose(torchx.MatMul(ctx, torchx.Transpose(wv, 1, 2)), 0, 1) // [B, H, dh]
		bv := torchx.Reshape(torchx.Narrow(w.inBias, 0, 2*h, h), 1, heads, dh)
		if drop.gen != nil && drop.attnRate > 0 {
			bv = torchx.Mul(bv, torchx.SumKeep(a, 2)) // dropped weights no longer sum to one
		}
		v = torchx.Reshape(torchx.Add(v, bv), in.b, h)
		attn := torchx.Linear(v, w.outWeight, w.outBias) // [B, h]
		x = torchx.LayerNorm(torchx.Add(attn, x), w.normWeight, w.normBias, 1e-5)
	}
	x = drop.on(x, drop.hidden)
	rows = drop.on(rows, drop.hidden)                                                                // one mask for a candidate that several queries share
	e.state = torchx.Normalize(torchx.Linear(x, p.params.Get("query_proj.weight"), torchx.Tensor{})) // [B, h]
	g := torchx.Normalize(torchx.Linear(rows, p.params.Get("cand_proj.weight"), torchx.Tensor{}))    // [U, h]
	e.cand = torchx.Embedding(g, in.pool)                                                            // [B, K, h]
}

// logits scores the pool for states [B, N, h]: cosine / temperature, plus the skip term → [B, N, K].
func (p *Policy) logits(e encoded, state torchx.Tensor) torchx.Tensor {
	var score torchx.Tensor
	if p.opt.Encoder == "attention" {
		score = torchx.Scale(torchx.MatMul(state, torchx.Transpose(e.cand, 1, 2)), 1/p.opt.Temperature)
		if p.opt.Skip.Enabled {
			score = torchx.Add(torchx.Mul(score, p.params.Get("learned_scale")), torchx.Unsqueeze(e.skip, 1))
		}
	} else {
		score = torchx.Unsqueeze(e.skip, 1)
	}
	if !e.base.Nil() {
		score = torchx.Add(score, torchx.Unsqueeze(e.base, 1))
	}
	return score
}

// stateful reports whether a choice changes the scores of later ones beyond excluding itself.
func (p *Policy) stateful() bool { return p.opt.Encoder == "attention" && p.opt.StateUpdate == "gate" }

// start is the query's state [B, 1, h]; no tensor without the encoder.
func (e encoded) start() torchx.Tensor {
	if e.state.Nil() {
		return e.state
	}
	return torchx.Unsqueeze(e.state, 1)
}

// advance is the state after choosing action [B, N] (int64) in state [B, N, h] (spec §4, step 4).
func (p *Policy) advance(e encoded, state, action torchx.Tensor) torchx.Tensor {
	shape := e.cand.Shape()
	b, k, h := shape[0], shape[1], shape[2]
	offset := make([]int64, b)
	for i := range offset {
		offset[i] = int64(i * k)
	}
	flat := torchx.Add(action, p.move(torchx.From(offset, b, 1)))    // [B, N] rows of [B·K, h]
	chosen := torchx.Embedding(torchx.Reshape(e.cand, b*k, h), flat) // [B, N, h]
	weight := p.params.Get("query_update_gate.weight")               // [h, 2h]
	gate := torchx.Sigmoid(torchx.Add(
		torchx.Linear(state, torchx.Narrow(weight, 1, 0, h), p.params.Get("query_update_gate.bias")),
		torchx.Linear(chosen, torchx.Narrow(weight, 1, h, h), torchx.Tensor{})))
	return torchx.Normalize(torchx.Add(chosen, torchx.Mul(gate, torchx.Sub(state, chosen)))) // gate·s + (1-gate)·e
}

// exclude lowers the logits [B, N, K] of the examples taken before ([B, N, t] positions).
func (p *Policy) exclude(logits, taken torchx.Tensor) torchx.Tensor {
	v := impossible
	if p.opt.Taken == "minus_100" {
		v = -100
	}
	return torchx.ScatterValue(logits, 2, taken, v)
}

// Forward returns log π of every scored step of every candidate, teacher-forced (spec §4). The encoder
// runs once a query, and the first step's scores once for all its candidates.
func (p *Policy) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	in := p.load(b)
	var drop dropout
	if opt.Train && (p.opt.Dropout > 0 || p.opt.AttnDropout > 0) {
		gen := torchx.NewGenerator(opt.DropoutSeed, p.device)
		defer gen.Free()
		drop = dropout{gen, p.opt.Dropout, p.opt.AttnDropout}
	}
	e := p.encode(in, drop)
	state := e.start() // [B, 1, h]
	var logp, dists []torchx.Tensor
	for t := range in.t {
		if t == 1 && p.stateful() {
			state = torchx.Expand(state, in.b, in.g, p.opt.HiddenDim) // beams part after the first choice
		}
		if t > 0 && p.stateful() {
			state = p.advance(e, state, torchx.Squeeze(torchx.Narrow(in.actions, 2, t-1, 1), 2))
		}
		logits := p.logits(e, state) // [B, 1 or G, K]
		if opt.Temperature > 0 && opt.Temperature != 1 {
			logits = torchx.Scale(logits, 1/opt.Temperature)
		}
		label := torchx.Narrow(in.actions, 2, t, 1) // [B, G, 1]
		if t > 0 {
			if !p.stateful() {
				logits = torchx.Expand(logits, in.b, in.g, in.k)
			}
			logits = p.exclude(logits, torchx.Narrow(in.actions, 2, 0, t))
		}
		if opt.Dist {
			dist := torchx.Expand(torchx.LogSoftmax(logits, -1), in.b, in.g, in.k) // [B, G, K]
			dists = append(dists, dist)
			logp = append(logp, torchx.Squeeze(torchx.Gather(dist, 2, label), 2))
		} else {
			score := torchx.Squeeze(torchx.Gather(torchx.Expand(logits, in.b, in.g, in.k), 2, label), 2) // [B, G]
			logp = append(logp, torchx.Sub(score, torchx.LogSumExp(logits, -1, false)))
		}
	}
	out := selector.Output{LogP: torchx.Mul(torchx.Stack(2, logp...), in.mask)} // [B, G, T]
	if opt.Dist {
		out.Dist = torchx.Stack(2, dists...) // [B, G, T, K]
	}
	return out
}
