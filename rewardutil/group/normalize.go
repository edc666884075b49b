package group

import (
	"math"
	"slices"

	"fulcrum/rewardutil/torchorder"
)

// NormalizeOptions configures how the rewards of one query are put on a common scale (for RCE's weights;
// GRPO's advantages start from raw rewards).
type NormalizeOptions struct {
	// scale of the rewards within a query
	Method string `koanf:"method" enum:"z_score,z_score_clamp,rank_normalize,none"`
	// z-scores are cut to plus or minus this (z_score_clamp)
	Clamp float64 `koanf:"clamp" range:"(0,inf]" when:"method=z_score_clamp"`
	// equal rewards share their mean rank, or are ranked by the reference's sort (rank_normalize)
	Ties string `koanf:"ties" enum:"average,position" when:"method=rank_normalize"`
}

// DefaultNormalizeOptions returns z-scores cut to ±3.
func DefaultNormalizeOptions() NormalizeOptions {
	return NormalizeOptions{Method: "z_score_clamp", Clamp: 3, Ties: "average"}
}

// Normalize returns the rewards of one query on the scale of o.Method:
//
//	z_score          (r - mean) / std with the sample deviation, where std > 1e-12; else r itself
//	z_score_clamp    the same, z-scores cut to ±clamp (r itself is not cut)
//	rank_normalize   1 - 2k/(n-1) for the k-th best (from 0); 0 for a single reward
//	none             r
//
// Rewards that float32 cannot tell apart count as equal: their deviation is rounding. Equal rewards get equal ranks. With ties at position,
// for reproducing the reference's numbers only, both is not so, and ranks are those of the C++ library's sort. Source: parity
// specification §3.
func Normalize(r []float64, o NormalizeOptions) []float64 {
	out := slices.Clone(r)
	mean, std, spread := Moments(r)
	equal := o.Ties != "position" && !Differ(r, spread)
	switch o.Method {
	case "z_score", "z_score_clamp":
		if equal || !(std > 1e-12) { // NaN for a single reward
			return out
		}
		for i, v := range r {
			out[i] = (v - mean) / std
			if o.Method == "z_score_clamp" {
				out[i] = math.Max(-o.Clamp, math.Min(o.Clamp, out[i]))
			}
		}
	case "rank_normalize":
		switch {
		case o.Ties == "position":
			return positionRanks(r)
		case equal:
			return make([]float64, len(r))
		}
		return CentredRanks(r)
	}
	return out
}

// positionRanks ranks like the reference: ties apart, in the order of the C++ library's sort.
func positionRanks(r []float64) []float64 {
	out := make([]float64, len(r))
	if len(r) == 1 {
		return out
	}
	for k, i := range torchorder.Sort(r) {
		out[i] = 1 - 2*float64(k)/float64(len(r)-1)
	}
	return out
}
