package advantage

import "fulcrum/rewardutil/group"

// meanOnly subtracts the group's mean: r - mean. Source: Dr. GRPO (arXiv:2503.20783).
func meanOnly() Method {
	return Method{Name: "mean_only", Group: centre, Centred: true, ShiftInvariant: true}
}

func centre(r []float64, _ Options) []float64 {
	mean, _, _ := group.Moments(r)
	return minus(r, mean, 1)
}
