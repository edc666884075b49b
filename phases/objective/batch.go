package objective

import (
	"iter"
	"math"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/selector"
)

// Spans cuts the queries 0 … n-1 into [from, to) of size; nil = all at once.
func Spans(n int, size *int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		step := option.Or(size, max(n, 1))
		for at := 0; at < n; at += step {
			if !yield(at, min(at+step, n)) {
				return
			}
		}
	}
}

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

// CountSteps returns the number of scored steps.
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

// Moments returns the mean and the deviation (n) of the valid entries.
func Moments(x []float64, valid []bool) (mean, std float64) {
	n := 0.0
	for i, v := range x {
		if valid[i] {
			mean, n = mean+v, n+1
		}
	}
	mean /= n
	for i, v := range x {
		if valid[i] {
			std += (v - mean) * (v - mean)
		}
	}
	return mean, math.Sqrt(std / n)
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
