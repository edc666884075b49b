package advantage

import "fulcrum/rewardutil/group"

// leaveOneOut subtracts the mean of the others: r - mean of the others = n/(n-1)·(r - mean). Source: RLOO
// (arXiv:2402.14740).
func leaveOneOut() Method {
	return Method{
		Name: "leave_one_out",
		Group: func(r []float64, _ Options) []float64 {
			mean, _, _ := group.Moments(r)
			return minus(r, mean, float64(len(r)-1)/float64(len(r)))
		},
		Centred: true, ShiftInvariant: true,
	}
}
