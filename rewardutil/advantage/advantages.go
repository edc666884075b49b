// Package advantage turns the rewards of groups into advantages and chooses the candidates that count.
package advantage

import (
	"errors"
	"math"

	"fulcrum/internal/option"
	"fulcrum/rewardutil/group"
)

// AdvantageOptions says how rewards become advantages within their groups.
type Options struct {
	// how a group's rewards are centred and scaled
	Method string `koanf:"method" enum:"z_score,mean_only,batch_std,leave_one_out,rank,none"`
	// advantages are cut to plus or minus this
	Clip float64 `koanf:"clip" range:"(0,inf]"`
	// floor under a group's standard deviation, in reward units (z_score); 0.01 was measured to learn nothing
	// on tiny rewards
	MinStd float64 `koanf:"min_std" range:"[0,inf)"`
	// deviation of z_score and batch_std: sample divides by n - 1 (TRL, verl), population by n
	Std string `koanf:"std" enum:"sample,population"`
	// groups whose best and worst reward differ by no more than this count as equal
	Precision float64 `koanf:"precision" range:"[0,inf)"`
	// subtracted from every advantage before the clip; above 0, fewer candidates count as good
	BaselineShift float64 `koanf:"baseline_shift" range:"(-inf,inf)"`
	// factor on negative advantages; 0 learns from the good candidates only
	NegativeWeight float64 `koanf:"negative_weight" range:"[0,inf)"`
}

// DefaultAdvantageOptions returns z-scores with a floor of 0.1 under the deviation, cut to ±5.
func DefaultOptions() Options {
	return Options{Method: "z_score", Clip: 5, MinStd: 0.1, Std: "sample", NegativeWeight: 1}
}

// Validate reports an unknown method and numbers that make no sense.
func (o Options) Validate() error {
	return errors.Join(
		option.OneOf("method", o.Method, "z_score", "mean_only", "batch_std", "leave_one_out", "rank", "none"),
		option.OneOf("std", o.Std, "sample", "population"),
		option.Want(o.Clip > 0, "clip", "want more than 0, got %v", o.Clip),
		option.Want(o.MinStd >= 0, "min_std", "want at least 0, got %v", o.MinStd),
		option.Want(o.Precision >= 0, "precision", "want at least 0, got %v", o.Precision),
		option.Want(o.NegativeWeight >= 0, "negative_weight", "want at least 0, got %v", o.NegativeWeight),
	)
}

// AdvantageStats describes the advantages of a batch. The moments are over the entries of groups
// with a signal; they are 0 where there is none.
type Stats struct {
	Groups       int // all groups, empty ones included
	Signal       int // groups whose rewards differ
	ConstantGood int // groups of equal rewards above the batch's mean (above 0 if the whole batch is equal)
	ConstantBad  int // the other groups of equal rewards
	Single       int // groups of one candidate, which nothing can be compared with
	Empty        int // groups whose entries are all masked

	Entries int // counted entries of groups with a signal
	Clipped int // those cut to ±clip
	Mean    float64
	Std     float64 // sample deviation, n-1
	MaxAbs  float64
}

// SignalShare returns the share of non-empty groups that have a learning signal.
func (s Stats) SignalShare() float64 {
	if s.Groups == s.Empty {
		return 0
	}
	return float64(s.Signal) / float64(s.Groups-s.Empty)
}

// Advantages returns group-relative advantages [B*G] of rewards [B*G], and their statistics. With m, s
// and n the mean, deviation (sample or population, as Std says) and size of the counted part of a group:
//
//	z_score        (r - m) / max(s, min_std)           GRPO, DeepSeekMath (arXiv:2402.03300) §4.1.2
//	mean_only      r - m                               Dr. GRPO (arXiv:2503.20783)
//	batch_std      (r - m) / deviation within groups, pooled over the batch
//	leave_one_out  r - mean of the others              RLOO (arXiv:2402.14740)
//	rank           ranks mapped to [-1, 1], ties share their mean
//	none           r
//
// Then baseline_shift is subtracted, negative values are scaled by negative_weight and all are cut to
// ±clip. A group of equal rewards (spread up to precision, or up to float32 rounding of its largest
// reward), a single candidate and a masked entry get exactly 0, whatever the method and the shift. The
// baseline is always the whole group: a curriculum takes its top k afterwards (see Curriculum.Apply).
// A NaN reward makes its group's advantages NaN, for the training step to refuse.
//
// The floor and the clip are not the paper's: without a floor, groups whose rewards hardly differ get
// full-size advantages, which is noise where rewards are tiny and skewed.
func Compute(rewards []float64, valid []bool, B, G int, opt Options) ([]float64, Stats) {
	adv := make([]float64, B*G)
	stats := Stats{Groups: B}
	hasSignal := make([]bool, B)
	var all []float64       // counted rewards
	var constants []float64 // the common rewards of constant groups
	var squares, freedom float64
	for b := range B {
		r, at := group.Gather(group.Row(rewards, valid, b, G))
		all = append(all, r...)
		m, _, spread := group.Moments(r)
		switch {
		case len(r) == 0:
			stats.Empty++
		case len(r) == 1 && !math.IsNaN(m):
			stats.Single++
		case !differ(r, spread, opt):
			constants = append(constants, m)
		default:
			stats.Signal++
			hasSignal[b] = true
			for i, v := range centre(r, m, opt) {
				adv[b*G+at[i]] = v
			}
			for _, v := range r {
				squares += (v - m) * (v - m)
			}
			freedom += degrees(len(r), opt)
		}
	}
	good, _, spread := group.Moments(all)
	if spread == 0 {
		good = 0
	}
	for _, c := range constants {
		if c > good {
			stats.ConstantGood++
		} else {
			stats.ConstantBad++
		}
	}
	scale := 1.0
	if opt.Method == "batch_std" && freedom > 0 {
		scale = math.Sqrt(squares / freedom)
	}
	var kept []float64
	for i := range adv {
		if !hasSignal[i/G] || !group.Counts(valid, i) {
			continue
		}
		a := adv[i]/scale - opt.BaselineShift
		if a < 0 {
			a *= opt.NegativeWeight
		}
		if math.Abs(a) > opt.Clip {
			a = math.Copysign(opt.Clip, a)
			stats.Clipped++
		}
		adv[i] = a
		kept = append(kept, a)
	}
	stats.describe(kept)
	return adv, stats
}

// centre applies the part of a method that needs one group only.
func centre(r []float64, mean float64, opt Options) []float64 {
	if opt.Method == "rank" {
		return group.CentredRanks(r)
	}
	if opt.Method == "none" {
		return r
	}
	scale := 1.0
	switch opt.Method {
	case "z_score":
		_, std, _ := group.Moments(r)
		if opt.Std == "population" {
			std *= math.Sqrt(float64(len(r)-1) / float64(len(r)))
		}
		scale = max(std, opt.MinStd)
	case "leave_one_out":
		scale = float64(len(r)-1) / float64(len(r)) // r - mean of the others = n/(n-1)·(r - mean)
	}
	out := make([]float64, len(r))
	for i, v := range r {
		out[i] = (v - mean) / scale
	}
	return out
}

// degrees is what a sum of n squares is divided by for a variance.
func degrees(n int, opt Options) float64 {
	if opt.Std == "population" {
		return float64(n)
	}
	return float64(n - 1)
}

// HasSignal says for each group whether its rewards tell its candidates apart: whether Advantages counts
// it under Signal.
func HasSignal(rewards []float64, valid []bool, B, G int, opt Options) []bool {
	out := make([]bool, B)
	for b := range B {
		r, _ := group.Gather(group.Row(rewards, valid, b, G))
		_, _, spread := group.Moments(r)
		out[b] = differ(r, spread, opt)
	}
	return out
}

// differ reports whether rewards with this spread count as different.
func differ(r []float64, spread float64, opt Options) bool {
	return !(spread <= max(opt.Precision, group.Rounding*group.MaxAbs(r))) // NaN counts, for the training step to refuse
}

// GroupStd returns the mean over groups of the deviation of their counted rewards; 0 where no group has two.
func GroupStd(rewards []float64, valid []bool, B, G int) float64 {
	sum, n := 0.0, 0
	for b := range B {
		r, _ := group.Gather(group.Row(rewards, valid, b, G))
		if len(r) < 2 {
			continue
		}
		_, std, _ := group.Moments(r)
		sum += std
		n++
	}
	return sum / math.Max(float64(n), 1)
}

func (s *Stats) describe(kept []float64) {
	s.Entries = len(kept)
	if len(kept) == 0 {
		return
	}
	mean, std, _ := group.Moments(kept)
	s.Mean, s.MaxAbs = mean, group.MaxAbs(kept)
	if len(kept) > 1 {
		s.Std = std
	}
}

// CompatAdvantages is the reference's advantage (parity specification §5): clamp((u-mean)/max(std, 0.1))
// of rewards that were normalised once already, over whatever entries are handed in (the curriculum's
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
