// Package advantage turns the rewards of groups into advantages and chooses the candidates that count.
package advantage

import (
	"errors"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/rewardutil/group"
)

// Options says how rewards become advantages within their groups.
type Options struct {
	// how a group's rewards are centred and scaled
	Method string `koanf:"method"`
	// advantages are cut to plus or minus this
	Clip float64 `koanf:"clip" range:"(0,inf]"`
	// floor under a group's standard deviation, in reward units (z_score)
	MinStd float64 `koanf:"min_std" range:"[0,inf)"`
	// deviation of z_score and batch_std: sample divides by n - 1, as PyTorch, TRL and verl do; population, by n, is for comparisons with
	// programs that do otherwise
	Std string `koanf:"std" enum:"sample,population" constant:"true"`
	// groups whose best and worst reward differ by no more than this count as equal
	Precision float64 `koanf:"precision" range:"[0,inf)"`
	// subtracted from every advantage before the clip; above 0, fewer candidates count as good
	BaselineShift float64 `koanf:"baseline_shift" range:"(-inf,inf)"`
}

// DefaultOptions returns z-scores with a floor of 0.1 under the deviation, cut to ±5.
func DefaultOptions() Options {
	return Options{Method: "z_score", Clip: 5, MinStd: 0.1, Std: "sample"}
}

func (Options) Choices() map[string][]string { return map[string][]string{"method": methodNames()} }

// Validate reports an unknown method and numbers that make no sense.
func (o Options) Validate() error {
	return errors.Join(option.OneOf("method", o.Method, methodNames()...), option.Tags(o))
}

// Stats describes the advantages of a batch. The moments are over the entries of groups
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

// Compute returns group-relative advantages [B*G] of rewards [B*G], and their statistics: those of the method (a file
// each), then baseline_shift is subtracted and all are cut to ±clip.
//
// A group of equal rewards (they differ by at most precision, or by float32 rounding of the largest), a single candidate
// and a masked entry get exactly 0, whatever the method and the shift, but for gains over a reference (Method.Anchored). The
// baseline is always the whole group: a curriculum takes its top k afterwards (CurriculumOptions.Apply). A NaN reward makes
// its group's advantages NaN, for the training step to refuse. The clip is not in the methods' papers.
func Compute(rewards []float64, valid []bool, B, G int, opt Options) ([]float64, Stats) {
	method := opt.method()
	adv := make([]float64, B*G)
	stats := Stats{Groups: B}
	all := make([]float64, 0, B*G) // counted rewards
	var constants []float64        // the common rewards of constant groups
	var groups [][]float64         // advantages of the groups with a signal
	places := make([]int, 0, B*G)  // where their entries stand in adv
	for b := range B {
		r, at := group.Gather(group.Row(rewards, valid, b, G))
		all = append(all, r...)
		m, _, width := group.Moments(r)
		switch {
		case len(r) == 0:
			stats.Empty++
		case len(r) == 1 && !math.IsNaN(m) && !method.Anchored:
			stats.Single++
		case !differ(r, width, opt):
			constants = append(constants, m)
		default:
			stats.Signal++
			groups = append(groups, method.Group(r, opt))
			places = append(places, list.Map(at, func(g int) int { return b*G + g })...)
		}
	}
	stats.countConstants(constants, all)
	if method.Batch != nil {
		method.Batch(groups, opt)
	}
	kept := slices.Concat(groups...)
	for i, a := range kept {
		a -= opt.BaselineShift
		if math.Abs(a) > opt.Clip {
			a = math.Copysign(opt.Clip, a)
			stats.Clipped++
		}
		kept[i], adv[places[i]] = a, a
	}
	stats.describe(kept)
	return adv, stats
}

// countConstants counts groups of equal rewards as good or bad, by the mean of all rewards.
func (s *Stats) countConstants(constants, all []float64) {
	good, _, width := group.Moments(all)
	if width == 0 {
		good = 0
	}
	for _, c := range constants {
		if c > good {
			s.ConstantGood++
		} else {
			s.ConstantBad++
		}
	}
}

// HasSignal reports for each group whether its rewards differ, so that Compute counts it under Signal.
func HasSignal(rewards []float64, valid []bool, B, G int, opt Options) []bool {
	out := make([]bool, B)
	for b := range B {
		r, _ := group.Gather(group.Row(rewards, valid, b, G))
		_, _, width := group.Moments(r)
		out[b] = differ(r, width, opt)
	}
	return out
}

// differ reports whether rewards that lie within this width count as different. NaN does: the training step refuses it.
func differ(r []float64, width float64, opt Options) bool {
	if opt.Anchored() {
		return len(r) > 0 && !(group.MaxAbs(r) <= opt.Precision)
	}
	return !(width <= opt.Precision) && group.Differ(r, width)
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
