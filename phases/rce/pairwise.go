package rce

import (
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil/group"
)

// pairwise is the logistic loss of pairs (RankNet, Burges et al. 2005, "Learning to rank using gradient descent", ICML, eq. 3 with
// certain targets), weighted by the gap of their rewards:
//
//	-Σ_ij g_ij log σ(s_i - s_j),  g_ij = max(r_i - r_j, 0) / Σ_kl max(r_k - r_l, 0) over the group.
//
// Without the gaps a pair that differs in its fourth digit would count as one where an answer turned right.
func pairwise() Loss {
	return Loss{Name: "pairwise", Pairs: true, Targets: gaps, Of: func(s, gaps torchx.Tensor) torchx.Tensor {
		behind := torchx.Sub(torchx.Unsqueeze(s, 1), torchx.Unsqueeze(s, 2))                   // [B, G, G] s_j - s_i
		missed := torchx.LogSumExp(torchx.Stack(3, behind, torchx.Scale(behind, 0)), 3, false) // log(1 + e^(s_j - s_i))
		return torchx.Sum(torchx.Mul(missed, gaps))
	}}
}

// gaps returns by how much each candidate is better than each other, 1 over each group, and counts the groups that differ.
func gaps(rewards []float64, valid []bool, G int) (targets []float64, groups int) {
	targets = make([]float64, len(rewards)*G)
	for from := 0; from < len(rewards); from += G {
		sum := 0.0
		r, _ := group.Gather(rewards[from:from+G], valid[from:from+G])
		if _, _, width := group.Moments(r); !group.Differ(r, width) {
			continue
		}
		for i := from; i < from+G; i++ {
			for j := from; j < from+G; j++ {
				if valid[i] && valid[j] && rewards[i] > rewards[j] {
					targets[i*G+j-from] = rewards[i] - rewards[j]
					sum += rewards[i] - rewards[j]
				}
			}
		}
		groups++
		for at := from * G; at < (from+G)*G; at++ {
			targets[at] /= sum
		}
	}
	return targets, groups
}
