// Package stat computes sums, means, deviations and medians for the whole program.
//
// Values are added in the order given. gonum's stat and floats packages add them in several lanes at a time, which changes
// the last bit, and these numbers stand in checkpoints, metrics.jsonl and reports, where recorded runs are compared byte by
// byte. Distributions and their quantiles are gonum's (stat/distuv).
package stat

import (
	"cmp"
	"math"
	"slices"
)

func Sum(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum
}

// Mean returns the mean of x, NaN of none.
func Mean(x []float64) float64 { return Sum(x) / float64(len(x)) }

// Squares returns the sum of the squared distances of x from a centre.
func Squares(x []float64, centre float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += (v - centre) * (v - centre)
	}
	return sum
}

// MeanSE returns the mean and its standard error (NaN for fewer than two values).
func MeanSE(x []float64) (mean, se float64) {
	n := float64(len(x))
	mean = Mean(x)
	if n < 2 {
		return mean, math.NaN()
	}
	return mean, math.Sqrt(Squares(x, mean) / (n - 1) / n)
}

// SD returns the standard deviation of at least two values, NaN of fewer.
func SD(x []float64) float64 {
	_, se := MeanSE(x)
	return se * math.Sqrt(float64(len(x)))
}

// Indices returns 0 … n-1.
func Indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Ranks returns the ranks of x, from 1; equal values share the mean of theirs.
func Ranks(x []float64) []float64 {
	order := Indices(len(x))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	ranks := make([]float64, len(x))
	for from := 0; from < len(x); {
		to := from + 1
		for to < len(x) && x[order[to]] == x[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			ranks[i] = float64(from+to+1) / 2
		}
		from = to
	}
	return ranks
}

// Less returns x less y, element by element.
func Less(x, y []float64) []float64 {
	out := slices.Clone(x)
	for i := range out {
		out[i] -= y[i]
	}
	return out
}

// Median returns the middle value, the mean of two; NaN of none. x keeps its order.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Middle returns the middle value, the larger of two: always one of x, which keeps its order and is not empty.
func Middle(x []float64) float64 { return slices.Sorted(slices.Values(x))[len(x)/2] }
