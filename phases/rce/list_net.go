package rce

import "fulcrum/internal/torchx"

// listNet is the listwise loss of ListNet (Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach", ICML, eq. 4
// with top-one probabilities), the cross entropy of two distributions over a group's candidates:
//
//	-Σ_i w_i log p_i,  w = softmax(r/τ), p = softmax(s) over the group.
//
// It is RCE but for the denominator of p: what the policy gives to selections outside the group does not matter, and candidates of equal
// reward are all to have one probability. Plackett-Luce's likelihood of the whole order would need an order of equal rewards.
func listNet() Loss {
	return Loss{Name: "list_net", Weighs: true, Of: func(s, weights torchx.Tensor) torchx.Tensor {
		return torchx.Neg(torchx.Sum(torchx.Mul(torchx.LogSoftmax(s, 1), weights)))
	}}
}
