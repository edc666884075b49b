package arms

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/simulated"
	"fulcrum/reports/stats"
)

// asked are what becomes of simulated questions.
type asked struct{ better, worse, within, open, missed, seeds float64 }

// askOnce asks about arms that have these differences of seeds, as run ask does, without intervals, which take most of the time. What it
// returns is 1 where it holds of any arm.
func askOnce(t *testing.T, all []Arm, truth, effect float64, whole bool) (out asked) {
	t.Helper()
	most := len(all[0].Scores)
	for _, n := range stats.Stages(most) {
		family := make([]*ArmComparison, len(all))
		raw := make([]float64, len(all))
		for i, arm := range all {
			a := Arm{Seeds: arm.Seeds[:n], QueryIDs: arm.QueryIDs, Scores: arm.Scores[:n]}
			c, err := a.unsettled(zeroArm(a), quick())
			if err != nil {
				t.Fatal(err)
			}
			_, c.Stage = stats.StageAt(n, most)
			family[i], raw[i] = &c, c.Among(c.P)
		}
		adjusted, _ := stats.HolmSteps(raw, len(all))
		for i, c := range family {
			c.Family = len(all)
			if c.Verdict = stats.NotSeparable; adjusted[i] < stats.Alpha {
				c.Verdict = map[bool]stats.Verdict{true: stats.Better, false: stats.Worse}[c.Mean > 0]
			}
		}
		if whole {
			quickly := stats.GroupBy(family, func(c *ArmComparison) string { return string(c.Verdict) })
			HolmArms(family)
			if slowly := stats.GroupBy(family, func(c *ArmComparison) string { return string(c.Verdict) }); !reflect.DeepEqual(quickly, slowly) {
				t.Errorf("%d seeds: verdicts %v; without intervals %v", n, slowly, quickly)
			}
		}
		out = asked{seeds: float64(n)}
		open := 0
		for _, c := range family {
			outcome := c.Outcome(effect, most)
			open += stats.BoolInt(outcome == Unsure)
			one := asked{missed: float64(stats.BoolInt(c.uncertainty.beyond(math.Abs(c.Mean-truth)) < stats.Alpha))}
			switch {
			case outcome != Settled:
				one.open = 1
			case c.Verdict == stats.Better:
				one.better = 1
			case c.Verdict == stats.Worse:
				one.worse = 1
			default:
				one.within = 1
			}
			out = asked{max(out.better, one.better), max(out.worse, one.worse), max(out.within, one.within), max(out.open, one.open),
				out.missed + one.missed/float64(len(all)), out.seeds}
		}
		if open == 0 {
			break
		}
	}
	return out
}

// Stages name a false winner, and deny a difference worth having, at most as often as one test, whatever spreads the scores and however
// many arms are asked about together.
func TestStagesKeepTheLevel(t *testing.T) {
	const most, n = 10, 200
	sims, slack := simulated.Number(60, 2000)
	for _, tc := range []struct {
		name                string
		arms                int     // beside the reference
		question, seed, own float64 // standard deviations, of one score
	}{
		{"questions only", 1, 1, 0, 0.3},
		{"questions only, five arms", 4, 1, 0, 0.3},
		{"seeds as much as questions", 1, 1, math.Sqrt(most) / math.Sqrt(n), 0.3},
		{"mostly seeds", 1, 0.3, math.Sqrt(most) / math.Sqrt(n), 1},
		{"nothing but the chance of each seed on each question", 1, 0, 0, 1},
	} {
		// What a test of all seeds at once, with known spread, finds in 90 of 100 cases.
		effect := map[int]float64{1: 3.24, 4: 3.78}[tc.arms] * math.Sqrt(tc.question*tc.question/n+tc.seed*tc.seed/most+tc.own*tc.own/n/most)
		for _, truth := range []float64{0, 1, 2} {
			t.Run(fmt.Sprintf("%s, difference %g", tc.name, truth), func(t *testing.T) {
				t.Parallel()
				var sum asked
				rng := rand.New(rand.NewPCG(31, uint64(truth)))
				for i := range sims {
					all := make([]Arm, tc.arms)
					for k := range all {
						all[k] = armWith(rng, most, n, truth*effect, tc.question, tc.seed, tc.own)
					}
					one := askOnce(t, all, truth*effect, effect, i < 3)
					sum = asked{sum.better + one.better, sum.worse + one.worse, sum.within + one.within, sum.open + one.open,
						sum.missed + one.missed, sum.seeds + one.seeds}
				}
				share := func(x float64) float64 { return x / float64(sims) }
				t.Logf("better %.1f %%, worse %.1f %%, within %.1f %%, not settled %.1f %%, covers %.1f %%, %.1f seeds", 100*share(sum.better),
					100*share(sum.worse), 100*share(sum.within), 100*share(sum.open), 100-100*share(sum.missed), share(sum.seeds))
				wrong := share(sum.worse)
				switch truth {
				case 0:
					wrong += share(sum.better)
				case 1:
					wrong += share(sum.within)
				}
				if limit := stats.Alpha + slack(stats.Alpha); wrong > limit {
					t.Errorf("%.1f %% wrong, want at most %.1f %%", 100*wrong, 100*limit)
				}
				if limit := 0.07 + slack(0.07); share(sum.missed) > limit {
					t.Errorf("%.1f %% of intervals miss, want at most %.1f %%", 100*share(sum.missed), 100*limit)
				}
				if open, limit := share(sum.open), 0.25+slack(0.25); tc.arms == 1 && truth == 1 && open > limit || truth == 2 && open > 0.01 {
					t.Errorf("%.1f %% are not settled, want at most %.1f %%", 100*open, 100*limit)
				}
			})
		}
	}
}

// exactly is an arm whose difference from zeroArm has this mean and this standard error over questions, and no spread of seeds.
func exactly(t *testing.T, seeds, most int, mean, se float64) *ArmComparison {
	t.Helper()
	a := armWith(rand.New(rand.NewPCG(19, 20)), 1, 400, 0, 1, 0, 0)
	was, by := stat.MeanSE(a.Scores[0])
	for i, x := range a.Scores[0] {
		a.Scores[0][i] = mean + (x-was)*se/by
	}
	a.Seeds, a.Scores = nil, slices.Repeat(a.Scores, seeds)
	for s := range seeds {
		a.Seeds = append(a.Seeds, int64(s))
	}
	c, err := a.unsettled(zeroArm(a), quick())
	if err != nil {
		t.Fatal(err)
	}
	_, c.Stage = stats.StageAt(seeds, most)
	HolmArms([]*ArmComparison{&c})
	return &c
}

// A question that only its stage keeps from being less than what is worth having is not given up; one whose questions decide it is.
func TestGivingUpCountsBothEnds(t *testing.T) {
	for _, tc := range []struct {
		mean, effect float64 // in standard errors
		want         Outcome
	}{
		{0, 3, Unsure},     // ends within ±effect
		{0.9, 3, Unsure},   // the same
		{1.2, 3, Hopeless}, // neither: the last stage asks for 2.02
		{-1.2, 3, Hopeless},
		{2.1, 3, Unsure}, // ends beyond 0
		{0, 2, Hopeless},
		{0, 5, Settled},
	} {
		if got := exactly(t, 3, 10, tc.mean, 1).Outcome(tc.effect, 10); got != tc.want {
			t.Errorf("mean %g, effect %g standard errors: %s, want %s", tc.mean, tc.effect, got, tc.want)
		}
	}
}

// Less than what is worth having is said at the level of all arms together, also of the arm that Holm's steps test last.
func TestWithinCountsTheFamily(t *testing.T) {
	family := []*ArmComparison{exactly(t, 10, 10, 9, 1), exactly(t, 10, 10, 8, 1), exactly(t, 10, 10, 7, 1), exactly(t, 10, 10, 0, 1)}
	HolmArms(family)
	last := family[3]
	if alone := exactly(t, 10, 10, 0, 1); !alone.Within(2.2) || last.Within(2.2) || !last.Within(2.7) {
		t.Errorf("within 2.2 standard errors alone %v, of four %v; within 2.7 of four %v: want true, false, true", alone.Within(2.2),
			last.Within(2.2), last.Within(2.7))
	}
}

// What is needed: without a spread of seeds as many questions as one test at the level of the last stage takes, with one more seeds.
func TestNeedsOfStages(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	needs := func(question, seed, effect float64) (seeds, questions int) {
		a := armWith(rng, 3, 400, 0, question, seed, 0)
		c, err := a.unsettled(zeroArm(a), quick())
		if err != nil {
			t.Fatal(err)
		}
		return c.Needs(effect, 10)
	}
	_, last := stats.StageAt(10, 10)
	seeds, questions := needs(1, 0, 0.05)
	if want := stats.QuestionsNeeded(0.05, 1, stats.Alpha*last.Share, 0.8); seeds != 0 || math.Abs(float64(questions)/float64(want)-1) > 0.1 {
		t.Errorf("questions alone: %d seeds or %d questions, want about %d questions", seeds, questions, want)
	}
	for _, of := range []struct {
		effect float64
		want   int
	}{{100, 3}, {0.5, 10}, {0.001, 0}} { // in this order: each draws an arm
		if seeds, questions := needs(0.01, 0.4, of.effect); seeds != of.want || questions != 0 {
			t.Errorf("seeds alone, a difference of %g: %d seeds or %d questions, want %d seeds", of.effect, seeds, questions, of.want)
		}
	}
}

// What a difference would take is said at the level of the whole question, not at that of one of its stages.
func TestStageSaysNothingOfWhatItTakes(t *testing.T) {
	c := exactly(t, 3, 10, 1, 1)
	if text := c.Sentence("A", "B", "reward"); strings.Contains(text, "would take") {
		t.Errorf("at a stage: %s", text)
	}
	c.Stage = stats.Stage{}
	HolmArms([]*ArmComparison{c})
	if text := c.Sentence("A", "B", "reward"); !strings.Contains(text, "would take about") {
		t.Errorf("without stages: %s", text)
	}
}
