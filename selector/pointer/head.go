package pointer

import (
	"math"

	"fulcrum/internal/torchx"
)

// Score heads: how well a candidate g fits the query state s (both unit vectors). Logits are scores divided by the
// temperature.
//
//	cosine    s·g                                       v3
//	bilinear  sᵀ W g, W = identity and a little noise at the start
//	additive  vᵀ tanh(√h (W_q s + W_c g))               v4-5; √h gives the entries of unit vectors unit size

// headWeights lists the parameters of the score head.
func headWeights(opt Options, h int) []weight {
	switch opt.Head {
	case "bilinear":
		return []weight{{name: "head.weight", shape: []int{h, h}, start: nearIdentity}}
	case "additive":
		return []weight{
			{name: "head.query.weight", shape: []int{h, h}, start: xavier}, {name: "head.candidate.weight", shape: []int{h, h}, start: xavier},
			// Small: the first logits are then about 1 apart, and not as sharp as a trained selector's.
			{name: "head.score.weight", shape: []int{1, h}, start: uniform(opt.Temperature / math.Sqrt(float64(h)/6))},
		}
	}
	return nil
}

// headKeys is what the head makes of the candidates once a batch [U, h]; no tensor where it needs nothing.
func (p *Policy) headKeys(e encoded) torchx.Tensor {
	if p.opt.Head != "additive" {
		return torchx.Tensor{}
	}
	return e.spread(torchx.Linear(torchx.Scale(e.unit, math.Sqrt(float64(p.opt.HiddenDim))), p.params.Get("head.candidate.weight"), torchx.Tensor{}))
}

// head scores the pool for queries [B, N, h] and multiplies by factor: [B, N, K].
func (p *Policy) head(e encoded, query torchx.Tensor, factor float64) torchx.Tensor {
	switch p.opt.Head {
	case "bilinear":
		return products(torchx.LinearT(torchx.Scale(query, factor), p.params.Get("head.weight")), e.cand)
	case "additive":
		q := torchx.Linear(torchx.Scale(query, math.Sqrt(float64(p.opt.HiddenDim))), p.params.Get("head.query.weight"), torchx.Tensor{}) // [B, N, h]
		keys := e.keys                                                                                                                   // [K, h]
		if !e.pool.Nil() {
			keys = torchx.Unsqueeze(keys, 1) // [B, 1, K, h]
		}
		hidden := torchx.Tanh(torchx.Add(torchx.Unsqueeze(q, 2), keys)) // [B, N, K, h]
		return torchx.Scale(torchx.Squeeze(torchx.Linear(hidden, p.params.Get("head.score.weight"), torchx.Tensor{}), 3), factor)
	}
	return products(torchx.Scale(query, factor), e.cand)
}
