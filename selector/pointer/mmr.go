package pointer

import "fulcrum/internal/torchx"

// mmr is maximal marginal relevance (Carbonell & Goldstein 1998) with learned weights (v4-3):
//
//	-relu(λ_t) · max over chosen i of cos(g_i, g_j)
//
// Its memory is that maximum [B, N, K].
type mmr struct{}

func (mmr) weights(opt Options, _ int) []weight {
	return []weight{{name: "diversity.weight", shape: []int{opt.DistinctSteps, 1}, start: constant(opt.Diversity.Weight)}}
}

func (mmr) prepare(*Policy, *encoded) {}

func (mmr) remember(_ *Policy, e encoded, memory []torchx.Tensor, chosen torchx.Tensor) []torchx.Tensor {
	nearest := products(chosen, e.cand)
	if len(memory) > 0 {
		nearest = torchx.Maximum(memory[0], nearest)
	}
	return []torchx.Tensor{nearest}
}

func (mmr) bonus(p *Policy, _ encoded, memory []torchx.Tensor, step int) torchx.Tensor {
	if step == 0 {
		return torchx.Tensor{}
	}
	return torchx.Neg(torchx.Mul(memory[0], torchx.ReLU(p.stepRow("diversity.weight", step-1)))) // the first choice has no weight
}
