package workload

import (
	"cmp"
	"fmt"
	"slices"

	"fulcrum/beamdata"
	"fulcrum/beamdata/audit"
	"fulcrum/experiments/job"
	"fulcrum/internal/stat"
	"fulcrum/phases"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// Audit looks at the selector's data: the recorded rewards of the sets that phases of this run learn from.
func (w *Pointer) Audit(precision float64) ([]audit.Fault, error) {
	c, b := w.job.Config, w.bundle
	faults := b.Audit(learnt(c, firstSet(b.RCE, b.Records), phases.FromBest, phases.FromRewards),
		learnt(c, firstSet(b.Records, b.RCE), phases.FromGroups), precision)
	for i, f := range faults {
		faults[i].Mild = f.Mild || f.Check == "held_out_in_pools" && c.Compatible() // the reference keeps them
	}
	return faults, nil
}

// learnt returns a set of recorded candidates that a phase of the schedule learns from, else nil.
func learnt[S any](c *job.Config, set *S, from ...phases.Learns) *S {
	if c.Learns(from...) {
		return set
	}
	return nil
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
	order := stat.Indices(set.Len())
	size := func(i int) int { return set.PoolSize(i)*10_000 + set.NumCandidates(i) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
	return order[:min(n, len(order))]
}

// medianLength is the median length of the table's rows; 1 of those that CLIP computes in its place.
func medianLength(j *job.Job, t *beamdata.Table) float64 {
	if selectorOf(j.Config).Clip.Path != nil {
		return 1
	}
	return stat.Middle(t.Lengths(1000))
}

// tellChosen says which numbers of the relation were chosen for the rows.
func tellChosen(j *job.Job, p *pointer.Policy, t *beamdata.Table) {
	asked, got := selectorOf(j.Config).Relation, p.Options().Relation
	usual := pointer.DefaultRelationOptions()
	if got.Bilinear == "none" || *got.Scale == *usual.Scale && *got.RowLength == *usual.RowLength {
		return
	}
	if asked.Scale == nil || asked.RowLength == nil {
		j.Logf("selector.relation: scale %g, row_length %g, of rows with %d columns and a median length of %.3g", *got.Scale, *got.RowLength,
			t.Dim, medianLength(j, t))
	}
}

// Scale names the relation's scale, which its scores, and so its steps, grow with.
func (w *Pointer) Scale() (key string, value float64, why string) {
	o, t := w.policy.Options(), w.bundle.Val.Table
	if o.Relation.Bilinear == "none" || o.Clip.Path != nil {
		return "", 0, ""
	}
	return "selector.relation.scale", *o.Relation.Scale, fmt.Sprintf("rows of data.embeddings have %d columns and a median length of %.2g, "+
		"divided by selector.relation.row_length=%g", t.Dim, medianLength(w.job, t), *o.Relation.RowLength)
}
