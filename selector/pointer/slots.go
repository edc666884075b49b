package pointer

import "fulcrum/internal/torchx"

// Decoders: which query scores the pool at step t.
//
//	autoregressive  the state s_t itself
//	slots           q_t = normalise(a_t ∘ s_t + b_t): a learned transform and slot vector for each step   v4-8
//
// With state_update=none every s_t is the initial state, and the steps are parallel but for excluding what is
// taken; with another one the slots see what was chosen.

func slotWeights(opt Options, h int) []weight {
	if opt.Decoder != "slots" {
		return nil
	}
	return []weight{
		{name: "slots.scale", shape: []int{opt.DistinctSteps, h}, start: constant(1)},
		{name: "slots.vector", shape: []int{opt.DistinctSteps, h}, start: normal(0.02)},
	}
}

// slot is the query of a cursor's step [B, N, h].
func (p *Policy) slot(c cursor) torchx.Tensor {
	return torchx.Normalize(torchx.Add(torchx.Mul(c.state, p.stepRow("slots.scale", c.step)), p.stepRow("slots.vector", c.step)))
}
