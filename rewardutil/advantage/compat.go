package advantage

import (
	"math"

	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/torchorder"
)

// This file follows the Python reference in place of Compute and Apply.

// CompatAdvantages is the reference's advantage (parity specification §5): clamp((u-mean)/max(std, 0.1))
// of rewards that were normalised once already, over the given entries (the curriculum's
// top k, not the group). One candidate gives NaN, as there. Statistics are over all entries. Inputs
// should be float32 values; results are rounded to float32.
func CompatAdvantages(normalized []float64, valid []bool, B, G int, clip float64) ([]float64, Stats) {
	adv := make([]float64, B*G)
	stats := Stats{Groups: B}
	var kept []float64
	for b := range B {
		u, at := group.Gather(group.Row(normalized, valid, b, G))
		mean, std, spread := group.Moments(u)
		if spread > 0 {
			stats.Signal++
		}
		scale := math.Max(std, 0.1) // NaN for one candidate
		for i, v := range u {
			a := (v - mean) / scale
			if math.Abs(a) > clip {
				a = math.Copysign(clip, a)
				stats.Clipped++
			}
			adv[b*G+at[i]] = float64(float32(a))
			kept = append(kept, adv[b*G+at[i]])
		}
	}
	stats.describe(kept)
	if len(kept) == 1 {
		stats.Std = math.NaN() // as torch.std
	}
	return adv, stats
}

// ApplyCompat is the reference's way (parity specification §5): the epoch's top k of each group by
// normalised reward, ties as libtorch's topk orders them, groups of k or fewer as they are listed; then
// CompatAdvantages within what is kept.
func (o CurriculumOptions) ApplyCompat(normalized []float64, valid []bool, B, G, epoch int, clip float64) (Selection, []float64, Stats) {
	s := Selection{B: B, G: G, K: o.TopK(epoch, G)}
	s.Index, s.Valid = make([]int, B*s.K), make([]bool, B*s.K)
	for b := range B {
		u, at := group.Gather(group.Row(normalized, valid, b, G))
		order := torchorder.TopK(u, s.K)
		for i := range order {
			if len(u) <= s.K {
				order[i] = i
			}
			s.Index[b*s.K+i], s.Valid[b*s.K+i] = at[order[i]], true
		}
	}
	adv, stats := CompatAdvantages(s.Take(normalized), s.Valid, B, s.K, clip)
	return s, adv, stats
}
