package advantage

import "fulcrum/rewardutil/group"

// rank maps the ranks of a group's rewards to [-1, 1]; ties share their mean. It is ours.
func rank() Method {
	return Method{
		Name:    "rank",
		Group:   func(r []float64, _ Options) []float64 { return group.CentredRanks(r) },
		Centred: true, ShiftInvariant: true, ScaleInvariant: true,
	}
}
