package workload

import (
	"cmp"
	"slices"

	"fulcrum/beamdata"
	"fulcrum/beamdata/audit"
	"fulcrum/experiments/job"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// Audit looks at the selector's data: the recorded rewards of the sets that phases of this run learn from.
func (w *Pointer) Audit(lim audit.Limits) ([]audit.Fault, error) {
	c, b := w.job.Config, w.bundle
	var imitated, compared *beamdata.Set
	if c.Learns(job.FromBest, job.FromRewards) {
		imitated = firstSet(b.RCE, b.Records)
	}
	if c.Learns(job.FromGroups) {
		compared = firstSet(b.Records, b.RCE)
	}
	return b.Audit(imitated, compared, lim), nil
}

// firstSet returns the first set with queries; nil where there is none.
func firstSet(sets ...*beamdata.Set) *beamdata.Set {
	if i := slices.IndexFunc(sets, func(s *beamdata.Set) bool { return s.Len() > 0 }); i >= 0 {
		return sets[i]
	}
	return nil
}

// Largest returns the n queries with the largest pools, and among those the most candidates.
func (w *Pointer) Largest(src selector.Source, n int) []int {
	set := src.(*pointer.Source).Set()
	order := make([]int, set.Len())
	for i := range order {
		order[i] = i
	}
	size := func(i int) int { return set.PoolSize(i)*10_000 + set.NumCandidates(i) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
	return order[:min(n, len(order))]
}
