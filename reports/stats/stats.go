package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
)

// Options fixes how intervals are made. Equal options and data give equal numbers.
type Options struct {
	Level     float64 // coverage of intervals
	Resamples int     // of the bootstrap and of the permutation test
	Power     float64 // for the number of questions needed
	Seed      uint64
	Most      float64 // what two scores can differ by at most: intervals of differences end there; 0: nobody knows
}

// ForTests returns options for a comparison that is corrected for so many tests: a corrected p-value below 1 - Level
// must be within reach of the resamples.
func (o Options) ForTests(n float64) Options {
	const enough, most = 50, 100
	o.Resamples *= int(min(max(math.Ceil(n/enough), 1), most))
	return o
}

// DefaultOptions asks for 95 % intervals from 10,000 resamples, and for 80 % power.
func DefaultOptions() Options {
	return Options{Level: 0.95, Resamples: 10_000, Power: 0.8, Seed: 1}
}

// Interval is a closed interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func (i Interval) Excludes(x float64) bool { return x < i.Low || x > i.High }

// Within returns the part of an interval between the least and the greatest value that there can be, and whether it ended beyond
// them. A true mean lies there, so that the part holds it as often as the whole does.
func (i Interval) Within(least, greatest float64) (Interval, bool) {
	in := Interval{min(max(i.Low, least), greatest), max(min(i.High, greatest), least)}
	return in, in != i
}

// Paired is the comparison of two policies on the same questions: difference = this − reference.
type Paired struct {
	N         int      `json:"n"`                  // questions
	Clusters  int      `json:"clusters,omitempty"` // groups of questions that count as one (grouping); 0: every question is its own
	Mean      float64  `json:"mean"`               // mean difference
	SE        float64  `json:"se"`                 // its standard error, over clusters
	SD        float64  `json:"sd"`                 // of the differences
	Effect    float64  `json:"effect"`             // Mean / SD (Cohen's d_z), 0 when no question differs
	Interval  Interval `json:"interval"`           // of the mean difference alone, Student's t, whatever family asks: the one that reports show
	BCa       Interval `json:"bca,omitzero"`       // bootstrap, bias-corrected and accelerated, corrected as p_holm is; none where that decides
	P         float64  `json:"p"`                  // two-sided sign-flip permutation test, two standard errors of its drawing added
	PHolm     float64  `json:"p_holm"`             // the same, corrected for the comparisons made beside it and for ChosenFrom
	Changed   int      `json:"changed"`            // questions whose score differs
	PFloor    bool     `json:"p_floor,omitempty"`  // P is the least that so many sign patterns can give: the true one may be smaller
	Questions int      `json:"questions"`          // needed to settle a difference of this size, as P is corrected; 0: none would
	Level     float64  `json:"level"`              // of the interval, and of all verdicts of the family together
	Cut       bool     `json:"cut,omitempty"`      // Interval ends at what scores can differ by, where it would have gone beyond
	Rough     string   `json:"rough,omitempty"`    // why interval and p-value may be off; "": nothing is known against them
	Correction
	Verdict Verdict `json:"verdict"`

	Values []float64 `json:"-"` // differences of the independent units
	flips  []float64 // those whose signs the permutation test draws
	opt    Options
}

// Correction says what a comparison's p-value and verdict are corrected for, and its interval but for the family.
type Correction struct {
	ChosenFrom    int     `json:"chosen_from,omitempty"`    // checkpoints that one side was chosen from by these very scores; 0: it was not
	Look          Look    `json:"look,omitzero"`            // at these questions, which spends a part of alpha
	Stage         Stage   `json:"stage,omitzero"`           // of a question that is judged several times
	Family        int     `json:"family,omitempty"`         // comparisons that are read together (Holm); 0: this one alone
	IntervalLevel float64 `json:"interval_level,omitempty"` // at which the interval was taken, for ChosenFrom and Look; 0: at Level
}

// Tests is what a p-value is multiplied by for the checkpoints that competed (Bonferroni) and for the part of alpha that its look has.
func (c Correction) Tests() float64 {
	tests := float64(max(c.ChosenFrom, 1))
	if c.Look.Level > 0 {
		tests *= Alpha / c.Look.Level
	}
	return tests
}

// Among is a p-value corrected for all but the family.
func (c Correction) Among(p float64) float64 { return min(1, p*c.Tests()*c.Stage.tests()) }

// words says what interval and p-value are corrected for, and what p alone is: "corrected for 31 checkpoints, p for 3 comparisons".
func (c Correction) words() string {
	var of []string
	if c.ChosenFrom > 1 {
		of = append(of, page.Plural(c.ChosenFrom, "checkpoint"))
	}
	if c.Look.N > 0 {
		of = append(of, c.Look.String())
	}
	text, also := "", "p corrected for "
	if len(of) > 0 {
		text, also = "corrected for "+page.Joined(of), ", p for "
	}
	if of = nil; c.Stage.N > 0 {
		of = append(of, c.Stage.String())
	}
	if c.Family > 1 {
		of = append(of, page.Plural(c.Family, "comparison"))
	}
	if len(of) == 0 {
		return text
	}
	return text + also + page.Joined(of)
}

// FamilyNote says what the comparisons of a page are corrected for, and what their intervals are not.
func FamilyNote(of string) string {
	return "P-values and verdicts are corrected for " + of + ", the family of this page (Holm). An interval is that of its question " +
		"alone, the same on every page that asks it."
}

// ComparePaired compares scores of the same questions, in the same order. It needs at least two. clusters [n] tells
// which questions belong together, those of one image for instance; nil: each stands alone.
//
// A winner is named when Student's interval, the bootstrap's and the permutation test agree: where
// differences are skewed the first is a little too sure on one side and the second is not.
//
// The interval shown is Student's. On differences as selectors make them, most of them 0 and a few large, it
// covers what it promises and the bootstrap does not: BCa takes the chance asymmetry of a few large
// differences for the shape of all, and where few of 1,000 questions change its 95 % are 91 %.
// docs/log/statistics.md has the simulation.
func ComparePaired(scores, reference []float64, clusters []int64, opt Options) (Paired, error) {
	p, err := PairedDifference(scores, reference, clusters, Correction{}, opt)
	if err == nil {
		Settle([]*Paired{&p})
	}
	return p, err
}

// PairedDifference computes the differences and their p-value. Settle adds intervals and verdict, once it is known how
// many comparisons are made together. of says what each of them is corrected for by itself.
func PairedDifference(scores, reference []float64, clusters []int64, of Correction, opt Options) (Paired, error) {
	p, err := DifferenceOf(scores, reference, clusters, opt)
	if err != nil {
		return p, err
	}
	p.Correction = of
	p.Flip(p.Tests())
	return p, nil
}

// Flip takes P by the sign-flip permutation test, as one of so many tests.
func (p *Paired) Flip(tests float64) { p.P, p.PFloor = SignFlip(p.flips, p.opt.ForTests(tests)) }

// DifferenceOf computes what a comparison is made of, without anything that takes resamples.
func DifferenceOf(scores, reference []float64, clusters []int64, opt Options) (Paired, error) {
	if len(scores) != len(reference) {
		return Paired{}, fmt.Errorf("paired comparison: %d scores against %d: want the same questions", len(scores), len(reference))
	}
	n, g := len(scores), NewGrouping(clusters)
	switch {
	case n < 2:
		return Paired{}, fmt.Errorf("paired comparison: %d questions: want at least 2", n)
	case g.Units(n) < 2:
		return Paired{}, fmt.Errorf("paired comparison: all %d questions are one cluster: want at least 2 (eval.cluster)", n)
	}
	diff := make([]float64, n)
	changed := 0
	for i := range diff {
		diff[i] = scores[i] - reference[i]
		if math.IsNaN(diff[i]) || math.IsInf(diff[i], 0) {
			return Paired{}, fmt.Errorf("paired comparison: question %d: scores %g and %g: want finite numbers", i, scores[i], reference[i])
		}
		if diff[i] != 0 {
			changed++
		}
	}
	values := g.Values(diff)
	mean, alone := stat.MeanSE(diff)
	_, se := g.MeanSE(diff)
	sd := alone * math.Sqrt(float64(n))
	p := Paired{N: n, Clusters: g.Clusters(), Mean: mean, SE: se, SD: sd, Changed: changed, Level: opt.Level, Values: values, opt: opt}
	if sd > 0 {
		p.Effect = mean / sd
	}
	p.Interval = StudentInterval(mean, se, len(values), opt.Level)
	p.cut()
	p.Rough = roughness(values, changed)
	p.flips = g.sums(diff)
	return p, nil
}

func (p *Paired) cut() {
	if most := p.opt.Most; most > 0 {
		p.Interval, p.Cut = p.Interval.Within(-most, most)
		p.BCa, _ = p.BCa.Within(-most, most)
	}
}

// StudentInterval returns the interval of a mean of n values by Student's t.
func StudentInterval(mean, se float64, n int, level float64) Interval {
	half := distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}.Quantile(0.5+level/2) * se
	return Interval{mean - half, mean + half}
}

// Settle corrects comparisons that are read together for their number (Holm) and for the checkpoints that their sides
// were chosen from, and sets the verdicts and the questions needed at the level that this leaves. The interval that stays is corrected for
// the checkpoints alone: it belongs to the question, not to the page that asks others beside it, nor to when it is asked.
func Settle(family []*Paired) { SettleAmong(family, len(family), nil) }

// SettleAmong is Settle for some of size comparisons: those that a choice made, whether they are shown or not. What interval
// returns for the i-th at opt.Level stands in place of Student's and the bootstrap's, and what it notes of the questions needed stays;
// nil: these.
func SettleAmong(family []*Paired, size int, interval func(i int, opt Options) *Interval) {
	raw := list.Map(family, func(p *Paired) float64 {
		if p.PFloor && p.flips != nil { // in a large family so few patterns may not be enough for a verdict
			p.Flip(float64(size) * p.Tests() * p.Stage.tests())
		}
		return p.Among(p.P)
	})
	adjusted, steps := HolmSteps(raw, size)
	for i, p := range family {
		p.PHolm, p.Family, p.IntervalLevel = adjusted[i], 0, 0
		if size > 1 {
			p.Family = size
		}
		opt := p.opt
		take := func(tests float64) (other bool) { // sets the interval that agrees with a p-value multiplied by tests
			if opt.Level = p.Level; tests > 1 {
				opt.Level = 1 - (1-p.Level)/tests
			}
			p.Interval = StudentInterval(p.Mean, p.SE, len(p.Values), opt.Level)
			if interval != nil {
				if of := interval(i, opt); of != nil {
					p.Interval, other = *of, true
				}
			}
			return other
		}
		take(p.Tests())
		if p.Tests() > 1 {
			p.IntervalLevel = opt.Level
		}
		p.cut()
		alone, cut := p.Interval, p.Cut
		if take(steps[i] * p.Tests() * p.Stage.tests()) { // interval has its own idea of the questions needed, too
			p.BCa = p.Interval
		} else {
			p.BCa = Interval{}
			if p.PHolm < 1-p.Level { // else no verdict, whatever it is; so many resamples cost more than a small run
				p.BCa = BootstrapBCa(p.Values, opt.ForTests(math.Floor(steps[i])*p.Tests()*p.Stage.tests()))
			}
			p.Questions = QuestionsNeeded(p.Mean, p.SE*math.Sqrt(float64(p.N)), 1-opt.Level, opt.Power)
		}
		p.cut()
		p.Verdict = VerdictOf(*p)
		p.Interval, p.Cut = alone, cut
	}
}

// MeanInterval returns the mean of x and its interval by Student's t, nil for fewer than two values. It ends at least and greatest, between
// which every value lies.
func MeanInterval(x []float64, level, least, greatest float64) (mean float64, interval *Interval) {
	mean, se := stat.MeanSE(x)
	if len(x) < 2 {
		return mean, nil
	}
	i, _ := StudentInterval(mean, se, len(x), level).Within(least, greatest)
	return mean, &i
}

// QuestionsNeeded returns how many questions a two-sided test at level alpha needs to find a mean difference of this size with
// the given power, 0 when there is none to find: (z(1−α/2) + z(power))² sd²/mean², the normal approximation (Cohen 1988,
// chapter 2). Among k comparisons alpha is a k-th of one test's, which is where a p-value that is multiplied by k must fall.
func QuestionsNeeded(mean, sd, alpha, power float64) int {
	if mean == 0 || sd == 0 {
		return 0
	}
	z := distuv.UnitNormal.Quantile(1-alpha/2) + distuv.UnitNormal.Quantile(power)
	n := math.Ceil(z * z * sd * sd / (mean * mean))
	if n > 1e12 {
		return 0
	}
	return max(int(n), 2)
}

// Holm returns p-values corrected for their number (Holm 1979), in the order given.
func Holm(p []float64) []float64 {
	adjusted, _ := HolmSteps(p, len(p))
	return adjusted
}

// HolmSteps is Holm among size p-values of which those beyond p are not known and count as 1. It also returns what
// each p-value was multiplied by: its own step, or more where a smaller one before it was not rejected either.
func HolmSteps(p []float64, size int) (adjusted, steps []float64) {
	order := stat.Indices(len(p))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	adjusted, steps = make([]float64, len(p)), make([]float64, len(p))
	running := 0.0
	for rank, i := range order {
		step := float64(size - rank)
		running = max(running, min(1, step*p[i]))
		adjusted[i], steps[i] = running, step
		if p[i] > 0 {
			steps[i] = max(step, running/p[i])
		}
	}
	return adjusted, steps
}

func BoolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// LuckOf is the expected largest of n standard normal values (Blom 1958).
func LuckOf(n int) float64 {
	return distuv.UnitNormal.Quantile((float64(n) - 0.375) / (float64(n) + 0.25))
}

// GroupBy puts things with the same key together, in the order in which the keys first come.
func GroupBy[T any, K comparable](things []T, key func(T) K) [][]T {
	var groups [][]T
	index := map[K]int{}
	for _, thing := range things {
		k := key(thing)
		at, seen := index[k]
		if !seen {
			at = len(groups)
			index[k], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], thing)
	}
	return groups
}
