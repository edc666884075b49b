package arms

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/reports/stats"
)

// Outcome is what becomes of a question at a stage.
type Outcome string

const (
	Settled  Outcome = "settled"  // one is better, or they differ by less than what is worth having
	Hopeless Outcome = "hopeless" // more seeds are unlikely to settle it
	Unsure   Outcome = "open"
)

// leastChance is what a question is given up below.
const leastChance = 0.1

// Outcome judges a question at the stage of its comparison: whether it is better or worse, or the same within effect, or whether the last
// stage, with most seeds, would settle even a difference of effect with a chance below 10 %. Of the spread over two seeds too little is
// known to give a question up.
func (c *ArmComparison) Outcome(effect float64, most int) Outcome {
	switch {
	case c.Verdict != stats.NotSeparable || c.Changed == 0 || c.Within(effect):
		return Settled
	case min(c.Seeds, c.SeedsOf) > 2 && c.chance(effect, most) < leastChance:
		return Hopeless
	}
	return Unsure
}

// Within reports whether the interval at the level of the stage, for the strictest of the comparisons that are read together, is nearer to
// 0 than effect. Holm's step of the test against 0 says nothing here: it is the laxest for the arm that looks most like its reference.
func (c *ArmComparison) Within(effect float64) bool {
	distance := effect - math.Abs(c.Mean)
	return distance > 0 && c.uncertainty.beyond(distance) < c.alphaAt(c.Stage)
}

// Needs returns the first stage, by its number of seeds, that settles a difference of size effect on these questions in 80 % of all cases
// or, where none does, how many questions let the last one; 0: no number of questions does.
func (c *ArmComparison) Needs(effect float64, most int) (seeds, questions int) {
	opt := stats.DefaultOptions()
	for _, n := range stats.Stages(most) {
		_, stage := stats.StageAt(n, most)
		opt.Level = 1 - c.alphaAt(stage)
		if _, seeds = c.uncertainty.needed(effect, c.N, opt); 0 < seeds && seeds <= n {
			return n, 0
		}
	}
	questions, _ = c.uncertainty.with(most).needed(effect, c.N, opt)
	return 0, questions
}

// Tells reports whether the interval is so narrow that 80 % of such comparisons would find a difference of this size.
func (c *ArmComparison) Tells(size float64) bool {
	opt, z := stats.DefaultOptions(), distuv.UnitNormal.Quantile
	return (c.Interval.High-c.Interval.Low)/2*(1+z(opt.Power)/z(0.5+opt.Level/2)) <= size
}

// alphaAt is the level of a stage, for the strictest of the comparisons that are read together.
func (c *ArmComparison) alphaAt(stage stats.Stage) float64 {
	return (1 - c.Level) * cmp.Or(stage.Share, 1) / (c.Tests() * float64(max(c.Family, 1)))
}

// with is the uncertainty that so many seeds would leave on each side: that of the questions stays, what seeds average away shrinks.
func (e armError) with(seeds int) armError {
	share, noise := float64(e.seeds())/float64(seeds), e.noise()
	e.sides = slices.Clone(e.sides)
	for i, s := range e.sides {
		e.sides[i] = seedPart{seeds, s.sd, s.means * share, s.noise * share}
	}
	e.question = max(0, e.question-noise) + noise*share
	return e
}

// chance is the conditional power of the last stage: the chance that the mean of most seeds is further from 0 than that stage asks for, or
// so near that its interval lies within effect, given the mean so far, where the true difference is effect to its side. The chance of the
// questions stays in the mean, that of the seeds so far weighs less with every further one.
func (c *ArmComparison) chance(effect float64, most int) float64 {
	e, end, mean := c.uncertainty, c.uncertainty.with(most), math.Abs(c.Mean)
	questions, seeds := max(0, e.question-e.noise()), e.seedVariance()+e.noise() // variances of the mean now
	share, drawn := float64(e.seeds())/float64(most), 0.0
	if questions > 0 {
		drawn = questions / (questions + seeds) // of the deviation from effect, what is due to the questions
	}
	expected := share*mean + (1-share)*(effect+(mean-effect)*drawn)
	sd := (1 - share) * math.Sqrt(questions*(1-drawn)+seeds*share/(1-share))
	_, last := stats.StageAt(most, most)
	alpha := c.alphaAt(last)
	z, t := distuv.UnitNormal.Quantile(1-alpha/2), distuv.StudentsT{Sigma: 1, Nu: float64(most - 1)}.Quantile(1-alpha/2)
	wanted := math.Sqrt(z*z*end.question + t*t*end.seedVariance()) // about end.halfWidth(alpha), which takes 1,000 times as long
	if sd == 0 || share >= 1 {
		return float64(stats.BoolInt(expected > wanted || expected < effect-wanted))
	}
	below := func(x float64) float64 { return distuv.UnitNormal.CDF((x - expected) / sd) }
	chance := 1 - below(wanted)
	if near := effect - wanted; near > 0 {
		chance += below(near) - below(-near)
	}
	return min(chance, 1)
}
