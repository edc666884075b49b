package pointer

import (
	"math"
	"math/rand/v2"

	"fulcrum/internal/torchx"
)

// Score heads: how well a candidate g fits the query state s (both unit vectors). Logits are scores divided by the
// temperature.
//
//	cosine    s·g                                       v3
//	bilinear  sᵀ W g, W = identity and a little noise at the start
//	additive  vᵀ tanh((W_q s + W_c g) / √h + β) / √h    v4-5
//
// The additive head starts near the cosine, not at random scores, from which it would learn nothing in a few epochs: W_q and
// W_c start equal, as rows ±w, so that the odd terms of tanh cancel and x² remains, of which w averages |s + g|² = 2 + 2 s·g:
//
//	-c (tanh(β + x) + tanh(β - x)) ≈ const + 2c tanh β (1 - tanh² β) x²,  x = w·(s + g) / √h
//
// Entries of W are then about √h and those of v about 1, so that a step of Adam, which moves every entry
// alike, moves scores as little as it moves the other heads'.

func headWeights(opt Options, h int) []weight {
	switch opt.Head {
	case "bilinear":
		return []weight{{name: "head.weight", shape: []int{h, h}, start: nearIdentity}}
	case "additive":
		const std, bias = 0.3, 0.6585 // x stays where tanh is curved; tanh β (1 - tanh² β) is largest, 0.385
		same := mirrored(std * math.Sqrt(float64(h)))
		return []weight{
			{name: "head.query.weight", shape: []int{h, h}, start: same, stream: "head"},
			{name: "head.candidate.weight", shape: []int{h, h}, start: same, stream: "head"},
			{name: "head.bias", shape: []int{h}, start: constant(bias)},
			{name: "head.score.weight", shape: []int{1, h}, start: constant(-1 / (2 * 0.385 * math.Sqrt(float64(h)) * std * std))},
		}
	}
	return nil
}

// headKeys returns the head's projection of the candidates, made once a batch [U, h]; undefined for heads without one.
func (p *Policy) headKeys(e encoded) torchx.Tensor {
	if p.opt.Head != "additive" {
		return torchx.Tensor{}
	}
	return e.perQuery(torchx.Linear(torchx.Scale(e.unit, p.perWidth()), p.params.Get("head.candidate.weight"), torchx.Tensor{}))
}

// head scores the pool for queries [B, N, h] and multiplies by factor: [B, N, K].
func (p *Policy) head(e encoded, query torchx.Tensor, factor float64) torchx.Tensor {
	switch p.opt.Head {
	case "bilinear":
		return e.scores(torchx.LinearT(torchx.Scale(query, factor), p.params.Get("head.weight")))
	case "additive":
		q := torchx.Linear(torchx.Scale(query, p.perWidth()), p.params.Get("head.query.weight"), p.params.Get("head.bias")) // [B, N, h]
		keys := e.keys                                                                                                      // [K, h]
		if !e.pool.Nil() {
			keys = torchx.Unsqueeze(keys, 1) // [B, 1, K, h]
		}
		hidden := torchx.Tanh(torchx.Add(torchx.Unsqueeze(q, 2), keys)) // [B, N, K, h]
		return torchx.Scale(torchx.Squeeze(torchx.Linear(hidden, p.params.Get("head.score.weight"), torchx.Tensor{}), 3),
			factor*p.perWidth())
	}
	return e.scores(torchx.Scale(query, factor))
}

func (p *Policy) perWidth() float64 { return 1 / math.Sqrt(float64(p.opt.HiddenDim)) }

// mirrored fills the first half of the rows from a normal distribution with deviation std; the second half is minus the first.
func mirrored(std float64) start {
	return func(r *rand.Rand, shape []int, out []float32) {
		half := len(out) / shape[0] * (shape[0] / 2)
		normal(std)(r, shape, out)
		for i := range half {
			out[half+i] = -out[i]
		}
	}
}
