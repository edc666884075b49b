package advantage

import (
	"math"

	"fulcrum/rewardutil/group"
)

// zScore divides by the group's own deviation: (r - mean) / max(deviation, min_std). Source: GRPO, DeepSeekMath
// (arXiv:2402.03300) §4.1.2.
//
// The floor is not the paper's: without it, groups whose rewards hardly differ get full-size advantages, which is noise
// where rewards are tiny and skewed.
func zScore() Method {
	return Method{
		Name: "z_score",
		Group: func(r []float64, o Options) []float64 {
			mean, std, _ := group.Moments(r)
			if o.Std == "population" {
				std *= math.Sqrt(float64(len(r)-1) / float64(len(r)))
			}
			return minus(r, mean, max(std, o.MinStd))
		},
		Centred: true, ShiftInvariant: true, ScaleInvariant: true,
	}
}
