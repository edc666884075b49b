package rce

import (
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
)

// dpo is direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290, eq. 7) on the best and the worst candidate of a group,
//
//	-log σ(β[(s_best - s°_best) - (s_worst - s°_worst)]),
//
// where s° is log π° of the policy at the start of the phase. It is the cross entropy of softmax(β(s - s°)) over the two with the best.
func dpo() Loss {
	return Loss{Name: "dpo", Ends: true, Of: func(s, best torchx.Tensor) torchx.Tensor {
		return torchx.Neg(torchx.Sum(torchx.Mul(torchx.LogSoftmax(s, 1), best)))
	}}
}

// ends returns the best and the worst candidate of each group, the first of several; 1 stands at the best. Groups of equal rewards, or
// of one candidate, are padding.
func ends(b *selector.Batch) (pair *selector.Batch, best []float64, groups int) {
	n := b.B()
	index, valid, best := make([]int, 2*n), make([]bool, 2*n), make([]float64, 2*n)
	for i := range n {
		rewards, at := group.Gather(group.Row(b.Rewards, b.Valid, i, b.G))
		high, low := 0, 0
		for k, r := range rewards {
			if r > rewards[high] {
				high = k
			}
			if r < rewards[low] {
				low = k
			}
		}
		if _, _, width := group.Moments(rewards); !group.Differ(rewards, width) {
			continue
		}
		index[2*i], index[2*i+1], valid[2*i], valid[2*i+1] = at[high], at[low], true, true
		best[2*i] = 1
		groups++
	}
	return b.Take(2, index, valid), best, groups
}
