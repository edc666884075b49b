package pointer

import "fulcrum/internal/torchx"

// coverage prefers candidates on topics that the query needs and the chosen examples leave open (v4-6). M learned prototypes p_m
// are the topics; the probability that a set covers a topic is monotone and submodular in the set:
//
//	topics    π_jm = softmax_m(g_j·p_m / temperature), p_m normalised
//	needs     n_m  = σ(W s₀ + b)_m of the initial query state
//	open      u_m  = Π over chosen i of (1 - π_im)
//	bonus     w · Σ_m n_m u_m π_jm = w · Σ_m n_m (covered_m(chosen + j) - covered_m(chosen))
//
// Its memory is u [B, N, M].
type coverage struct{}

func (coverage) weights(opt Options, h int) []weight {
	m := opt.Diversity.Prototypes
	return append([]weight{
		{name: "diversity.weight", shape: []int{1}, start: constant(opt.Diversity.Weight)},
		{name: "diversity.prototypes", shape: []int{m, h}, start: normal(1)},
	}, linearWeights("diversity.needs.", h, m, xavier)...)
}

// topics returns the topic distributions [..., M] of unit vectors [..., h].
func (coverage) topics(p *Policy, x torchx.Tensor) torchx.Tensor {
	prototypes := torchx.Normalize(p.params.Get("diversity.prototypes")) // [M, h]
	return torchx.Softmax(torchx.Scale(products(x, prototypes), 1/p.opt.Temperature), -1)
}

func (k coverage) prepare(p *Policy, e *encoded) {
	// [B, K, M] or [K, M]
	e.topics = e.perQuery(k.topics(p, e.unit))
	// [B, 1, M]
	e.needs = torchx.Sigmoid(torchx.Linear(e.state, p.params.Get("diversity.needs.weight"), p.params.Get("diversity.needs.bias")))
}

func (k coverage) remember(p *Policy, _ encoded, memory []torchx.Tensor, chosen torchx.Tensor) []torchx.Tensor {
	open := torchx.AddScalar(torchx.Neg(k.topics(p, chosen)), 1)
	if len(memory) > 0 {
		open = torchx.Mul(memory[0], open)
	}
	return []torchx.Tensor{open}
}

func (coverage) bonus(p *Policy, e encoded, memory []torchx.Tensor, step int) torchx.Tensor {
	wanted := e.needs
	if step > 0 {
		wanted = torchx.Mul(wanted, memory[0])
	}
	return products(torchx.Mul(wanted, p.params.Get("diversity.weight")), e.topics)
}
