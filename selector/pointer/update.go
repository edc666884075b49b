package pointer

import "fulcrum/internal/torchx"

// State updates: how choosing example e changes the query state s (both unit vectors). The next state is
// always normalised.
//
//	none         s' = s                                                                   v2
//	scalar_gate  s' = z·s + (1-z)·e,  z = σ(w·[s; e] + b), one number                     v1
//	gate         s' = z∘s + (1-z)∘e,  z = σ(W[s; e] + b), one number a dimension          v3, v4-1
//	transformer  s' = a causal transformer's reading of s₀ and all that was chosen        v0 (transformer.go)
//	gru          hidden' = GRUCell(e + embedding of the step, hidden), hidden₀ = s₀, s' = hidden'    v4-2

// gateName is the parameter of v3's gate in the state dict.
const gateName = "query_update_gate"

func updateWeights(opt Options, h int) []weight {
	switch opt.StateUpdate {
	case "gate":
		return linearWeights(gateName+".", 2*h, h, xavier)
	case "scalar_gate":
		return linearWeights("scalar_update_gate.", 2*h, 1, xavier)
	case transformerState:
		return opt.Transformer.weights(opt, h)
	case "gru":
		return []weight{ // PyTorch's GRUCell and its start
			{name: "state_gru.weight_ih", shape: []int{3 * h, h}, start: kaiming},
			{name: "state_gru.weight_hh", shape: []int{3 * h, h}, start: kaiming},
			{name: "state_gru.bias_ih", shape: []int{3 * h}, start: zeros},
			{name: "state_gru.bias_hh", shape: []int{3 * h}, start: zeros},
			{name: "step_embedding.weight", shape: []int{opt.DistinctSteps, h}, start: normal(0.02)},
		}
	}
	return nil
}

// update moves the state [B, N or 1, h] of a cursor, whose step is counted already, to the chosen examples [B, N, h].
func (p *Policy) update(c *cursor, chosen torchx.Tensor) {
	switch p.opt.StateUpdate {
	case transformerState:
		shape := chosen.Shape()
		c.prefix = torchx.Cat(2, torchx.Expand(c.prefix, -1, shape[1], -1, -1), torchx.Unsqueeze(chosen, 2))
		c.state = p.readOn(c.prefix)
	case "gru":
		c.hidden = p.gru(c.hidden, torchx.Add(chosen, p.stepRow("step_embedding.weight", c.step-1)))
		c.state = torchx.Normalize(c.hidden)
	case "scalar_gate":
		c.state = p.gate("scalar_update_gate", c.state, chosen)
	default:
		c.state = p.gate(gateName, c.state, chosen)
	}
}

// gate mixes state and chosen by a sigmoid of both: of h numbers, or of one (spec §4, step 4).
func (p *Policy) gate(name string, state, chosen torchx.Tensor) torchx.Tensor {
	h := p.opt.HiddenDim
	before := torchx.Linear(state, p.params.Part(name+".weight", 1, 0, h), p.params.Get(name+".bias"))
	inside := torchx.Linear(chosen, p.params.Part(name+".weight", 1, h, h), torchx.Tensor{})
	if name == gateName && torchx.PoolRuns(chosen) {
		return torchx.Gate(state, before, chosen, inside)
	}
	z := torchx.Sigmoid(torchx.Add(before, inside))
	return torchx.Normalize(torchx.Add(chosen, torchx.Mul(z, torchx.Sub(state, chosen)))) // z·s + (1-z)·e
}

// gru is PyTorch's GRUCell (Cho et al. 2014): input [B, N, h], hidden [B, N or 1, h] → [B, N, h].
func (p *Policy) gru(hidden, input torchx.Tensor) torchx.Tensor {
	h := p.opt.HiddenDim
	in := torchx.Linear(input, p.params.Get("state_gru.weight_ih"), p.params.Get("state_gru.bias_ih"))   // [B, N, 3h]
	was := torchx.Linear(hidden, p.params.Get("state_gru.weight_hh"), p.params.Get("state_gru.bias_hh")) // [B, N or 1, 3h]
	part := func(x torchx.Tensor, i int) torchx.Tensor { return torchx.Narrow(x, 2, i*h, h) }
	reset := torchx.Sigmoid(torchx.Add(part(in, 0), part(was, 0)))
	keep := torchx.Sigmoid(torchx.Add(part(in, 1), part(was, 1)))
	fresh := torchx.Tanh(torchx.Add(part(in, 2), torchx.Mul(reset, part(was, 2))))
	return torchx.Add(fresh, torchx.Mul(keep, torchx.Sub(hidden, fresh)))
}

// stepRow is the row of a parameter [distinct_steps, n] for a step from 0: [1, n]. Later steps share the last row.
func (p *Policy) stepRow(name string, step int) torchx.Tensor {
	return p.params.Part(name, 0, min(step, p.opt.DistinctSteps-1), 1)
}
