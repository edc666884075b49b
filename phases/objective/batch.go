package objective

import (
	"math"

	"fulcrum/internal/list"
	"fulcrum/selector"
)

// MeanReward returns the mean reward of a batch's valid candidates, 0 without any.
func MeanReward(b *selector.Batch) float64 {
	sum := 0.0
	for i, v := range b.Valid {
		if v {
			sum += b.Rewards[i]
		}
	}
	return sum / math.Max(float64(b.NumValid()), 1)
}

func CountSteps(b *selector.Batch) int {
	return list.Count(b.Mask, func(m float32) bool { return m != 0 })
}

func Share(n, of int) float64 { return float64(n) / math.Max(float64(of), 1) }

// NormalizeGroups applies normalize to each group's valid rewards.
func NormalizeGroups(b *selector.Batch, normalize func([]float64) []float64) []float64 {
	out := make([]float64, len(b.Rewards))
	var group []float64
	for i := range b.B() {
		group = group[:0]
		for _, at := range b.Candidates(i) {
			group = append(group, b.Rewards[at])
		}
		z := normalize(group)
		for _, at := range b.Candidates(i) {
			out[at], z = z[0], z[1:]
		}
	}
	return out
}

func OneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func Rounded(x []float64) []float32 {
	return list.Map(x, func(v float64) float32 { return float32(v) })
}
