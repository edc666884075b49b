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

// Within reports whether the interval that decides, corrected as p is, is nearer to 0 than effect.
func (c *ArmComparison) Within(effect float64) bool {
	return -effect < c.BCa.Low && c.BCa.High < effect
}

// Needs returns the first stage, by its number of seeds, that settles a difference of size effect on these questions in 80 % of all cases
// or, where none does, how many questions let the last one; 0: no number of questions does.
func (c *ArmComparison) Needs(effect float64, most int) (seeds, questions int) {
	opt := stats.DefaultOptions()
	for _, n := range stats.Stages(most) {
		opt.Level = 1 - c.alphaAt(n, most)
		if _, seeds = c.uncertainty.needed(effect, c.N, opt); 0 < seeds && seeds <= n {
			return n, 0
		}
	}
	questions, _ = c.uncertainty.with(most).needed(effect, c.N, opt)
	return 0, questions
}

// alphaAt is the level of the stage of so many seeds, for the strictest of the comparisons that are read together.
func (c *ArmComparison) alphaAt(seeds, most int) float64 {
	_, stage := stats.StageAt(seeds, most)
	return (1 - c.Level) * stage.Share / (c.Tests() * float64(cmp.Or(c.Family, 1)))
}

// with is the uncertainty that so many seeds would leave on each side: that of the questions stays, what seeds average away shrinks.
func (e armError) with(seeds int) armError {
	share, noise := float64(e.seeds())/float64(seeds), 0.0
	e.sides = slices.Clone(e.sides)
	for i, s := range e.sides {
		noise += s.noise
		e.sides[i] = seedPart{seeds, s.sd, s.means * share, s.noise * share}
	}
	e.question = max(0, e.question-noise) + noise*share
	return e
}

// chance is the conditional power of the last stage: the chance that the mean of most seeds is further from 0 than that stage asks for,
// given the mean so far, where the true difference is effect to its side. The chance of the questions stays in the mean, that of the seeds
// so far weighs less with every further one.
func (c *ArmComparison) chance(effect float64, most int) float64 {
	e, end := c.uncertainty, c.uncertainty.with(most)
	noise := 0.0
	for _, s := range e.sides {
		noise += s.noise
	}
	questions, seeds := max(0, e.question-noise), e.seedVariance()+noise // variances of the mean now
	share := float64(e.seeds()) / float64(most)
	mean, drawn := math.Abs(c.Mean), 0.0
	if questions > 0 {
		drawn = questions / (questions + seeds) // of the deviation from effect, what is due to the questions
	}
	expected := share*mean + (1-share)*(effect+(mean-effect)*drawn)
	sd := (1 - share) * math.Sqrt(questions*(1-drawn)+seeds*share/(1-share))
	alpha := c.alphaAt(most, most)
	z, t := distuv.UnitNormal.Quantile(1-alpha/2), distuv.StudentsT{Sigma: 1, Nu: float64(most - 1)}.Quantile(1-alpha/2)
	wanted := math.Sqrt(z*z*end.question + t*t*end.seedVariance())
	if sd == 0 || share >= 1 {
		return float64(stats.BoolInt(mean > wanted))
	}
	return distuv.UnitNormal.CDF((expected - wanted) / sd)
}
