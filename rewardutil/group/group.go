// Package group computes with the values of candidates in groups: moments, ranks, scales and RCE's weights.
package group

import (
	"errors"
	"fmt"
	"math"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// Counts reports whether entry i counts; a nil mask counts everything.
func Counts(valid []bool, i int) bool { return valid == nil || valid[i] }

// Gather returns the counted values of one group and their positions in it.
func Gather(x []float64, valid []bool) (values []float64, at []int) {
	values, at = make([]float64, 0, len(x)), make([]int, 0, len(x))
	for i, v := range x {
		if Counts(valid, i) {
			values, at = append(values, v), append(at, i)
		}
	}
	return values, at
}

// Row returns group b of a flat [B, G] matrix and its part of the mask.
func Row(x []float64, valid []bool, b, G int) ([]float64, []bool) {
	x = x[b*G : (b+1)*G]
	if valid == nil {
		return x, nil
	}
	return x, valid[b*G : (b+1)*G]
}

// Moments returns the mean, the sample standard deviation (n-1; NaN for one value) and the width
// max - min. Equal values give exactly their mean and a deviation of exactly 0.
func Moments(x []float64) (mean, std, spread float64) {
	if len(x) == 0 {
		return math.NaN(), math.NaN(), 0
	}
	lo, hi := x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	if mean = stat.Mean(x); lo == hi {
		mean = lo
	}
	return mean, math.Sqrt(stat.Squares(x, mean) / float64(len(x)-1)), hi - lo
}

// CentredRanks maps the ranks of x to [-1, 1], the best value at +1; equal values share the mean of theirs, and a single one gets 0.
func CentredRanks(x []float64) []float64 {
	if len(x) == 1 {
		return []float64{0}
	}
	return list.Map(stat.Ranks(x), func(rank float64) float64 { return 2*(rank-1)/float64(len(x)-1) - 1 })
}

// Rounding is the relative difference at which two float32 rewards can no longer be told apart.
const Rounding = 4e-7

// Differ reports whether rewards that lie within this width can be told apart. NaN can: the training step refuses it.
func Differ(r []float64, width float64) bool { return !(width <= Rounding*MaxAbs(r)) }

// MaxAbs returns the largest absolute value, 0 of none; NaN where a value is.
func MaxAbs(x []float64) float64 {
	m := 0.0
	for _, v := range x {
		m = max(m, math.Abs(v)) // keeps NaN
	}
	return m
}

// MaxReward bounds rewards and the scores they are made of, in both directions. Larger ones are mistakes, and overflow
// in means and variances.
const MaxReward = 1e30

// CheckReward returns an error that says the allowed range if v is not finite or beyond ±MaxReward.
func CheckReward(v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return errors.New("want a finite number")
	case math.Abs(v) > MaxReward:
		return fmt.Errorf("want a number within ±%g", MaxReward)
	}
	return nil
}
