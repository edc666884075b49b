package rce

import "fulcrum/internal/torchx"

// expectedReward is the negative expected reward of the policy over the candidates of a group,
//
//	-Σ_i p_i r_i,  p = softmax(s) over the group,
//
// with its exact gradient, -Σ_i p_i (r_i - Σ_j p_j r_j) ∇s_i: REINFORCE (Williams 1992, Machine Learning 8) without its samples. Over all
// selections (rollout=enumerated) p is the policy itself; over recorded candidates it is the policy given that it takes one of them.
func expectedReward() Loss {
	return Loss{Name: "expected_reward", Signed: true, Targets: eachReward, Of: func(s, rewards torchx.Tensor) torchx.Tensor {
		return torchx.Neg(torchx.Sum(torchx.Mul(torchx.Softmax(s, 1), rewards)))
	}}
}

// eachReward returns the rewards, 0 where there is no candidate, and counts the groups that have one.
func eachReward(rewards []float64, valid []bool, G int) (targets []float64, groups int) {
	targets = make([]float64, len(rewards))
	for from := 0; from < len(rewards); from += G {
		some := false
		for at := from; at < from+G; at++ {
			if valid[at] {
				targets[at], some = rewards[at], true
			}
		}
		if some {
			groups++
		}
	}
	return targets, groups
}
