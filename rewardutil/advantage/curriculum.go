package advantage

import (
	"cmp"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/rewardutil/group"
)

// CurriculumOptions says how many of a group's best candidates enter the loss: a few in the first
// epochs, then more. Taking the top k with the whole group as baseline gives positive advantages only,
// so early curriculum is weighted imitation of the best candidates; contrast comes later.
type CurriculumOptions struct {
	// epochs with the early top k; 0 = no curriculum
	EarlyEpochs int `koanf:"early_epochs" range:"[0,inf)"`
	// best candidates of a group that count in the early epochs
	EarlyTopK int `koanf:"early_top_k" range:"[1,inf)" when:"early_epochs"`
	// best candidates that count afterwards; null = all
	LateTopK *int `koanf:"late_top_k" range:"[1,inf)"`
	// advantages relative to the whole group, or again within the top k (which deletes the signal of near-equal
	// rewards)
	Baseline string `koanf:"baseline" enum:"group,subset"`
}

// DefaultCurriculumOptions returns no curriculum: every candidate counts from the first epoch.
func DefaultCurriculumOptions() CurriculumOptions {
	return CurriculumOptions{EarlyTopK: 3, Baseline: "group"}
}

// TopK returns how many of G candidates count in the given epoch (1-based).
func (o CurriculumOptions) TopK(epoch, G int) int {
	switch {
	case epoch <= o.EarlyEpochs:
		return min(o.EarlyTopK, G)
	case o.LateTopK != nil:
		return min(*o.LateTopK, G)
	}
	return G
}

// Selection is a choice of K candidates from each of B groups of G.
type Selection struct {
	B, G, K int
	Index   []int  // [B*K] positions in the group, best first; 0 where Valid is false
	Valid   []bool // [B*K]; a group with fewer than K counted candidates is padded
}

// TopK selects the k candidates of highest reward in each group, best first; ties go to the earlier
// position. Masked entries are never chosen. k of 0 or of G and more keeps every entry in its place.
func TopK(rewards []float64, valid []bool, B, G, k int) Selection {
	s := Selection{B: B, G: G, K: k}
	if k <= 0 || k >= G {
		s.K = G
	}
	s.Index, s.Valid = make([]int, B*s.K), make([]bool, B*s.K)
	for b := range B {
		if s.K == G {
			for g := range G {
				s.Index[b*G+g], s.Valid[b*G+g] = g, group.Counts(valid, b*G+g)
			}
			continue
		}
		r, at := group.Gather(group.Row(rewards, valid, b, G))
		order := stat.Indices(len(r))
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(r[j], r[i]) })
		for i, o := range order[:min(s.K, len(order))] {
			s.Index[b*s.K+i], s.Valid[b*s.K+i] = at[o], true
		}
	}
	return s
}

// Take returns the selected entries [B*K] of x [B*G], 0 where nothing was selected.
func (s Selection) Take(x []float64) []float64 {
	out := make([]float64, len(s.Index))
	for i, g := range s.Index {
		if s.Valid[i] {
			out[i] = x[i/s.K*s.G+g]
		}
	}
	return out
}

// Apply computes advantages and takes the epoch's top k, in this order: with baseline group, over the
// whole group before anything is dropped. adv is [B*K], for the selected entries. The statistics are
// those of the whole groups and of what is left of them.
func (o CurriculumOptions) Apply(rewards []float64, valid []bool, B, G, epoch int, opt Options) (sel Selection, adv []float64, before,
	after Stats) {
	all, before := Compute(rewards, valid, B, G, opt)
	sel = TopK(rewards, valid, B, G, o.TopK(epoch, G))
	if o.Baseline == "subset" {
		adv, after = Compute(sel.Take(rewards), sel.Valid, B, sel.K, opt)
		return sel, adv, before, after
	}
	adv = sel.Take(all)
	return sel, adv, before, remaining(adv, sel, before, opt.Clip)
}

// remaining describes the advantages left after a selection: a group still has a signal when some advantage is not 0.
func remaining(adv []float64, sel Selection, before Stats, clip float64) Stats {
	after := before
	after.Signal, after.Clipped, after.Mean, after.Std, after.MaxAbs = 0, 0, 0, 0, 0
	kept := make([]float64, 0, len(adv))
	for b := range sel.B {
		a, _ := group.Gather(group.Row(adv, sel.Valid, b, sel.K))
		if group.MaxAbs(a) != 0 {
			after.Signal++
			kept = append(kept, a...)
			after.Clipped += list.Count(a, func(v float64) bool { return math.Abs(v) == clip })
		}
	}
	after.describe(kept)
	return after
}
