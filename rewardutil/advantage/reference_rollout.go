package advantage

// referenceRollout subtracts what the reference policy earns with its own greedy selection or answer: r - r°. Source: RRPO
// (arXiv:2604.02091), whose reference-anchored baseline is deterministic; its rewards of the steps of a selection are left out. The phase
// subtracts r°, so that the rewards of a group come in as gains, and a group of equal rewards has a signal if it beats the reference or
// falls behind it.
func referenceRollout() Method {
	return Method{Name: "reference_rollout", Group: func(gains []float64, _ Options) []float64 { return gains }, Anchored: true}
}
