package arms

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"fulcrum/internal/testkit/simulated"
	"fulcrum/reports/stats"
)

// asked are what becomes of simulated questions.
type asked struct{ better, worse, within, open, missed, seeds float64 }

// askOnce asks one question whose arm has these differences of seeds, as run ask does, without intervals, which take most of the time.
func askOnce(t *testing.T, all Arm, truth, effect float64, whole bool) (out asked) {
	t.Helper()
	most := len(all.Scores)
	for _, n := range stats.Stages(most) {
		a := Arm{Seeds: all.Seeds[:n], QueryIDs: all.QueryIDs, Scores: all.Scores[:n]}
		c, err := a.unsettled(zeroArm(a), quick())
		if err != nil {
			t.Fatal(err)
		}
		_, c.Stage = stats.StageAt(n, most)
		distance := effect - math.Abs(c.Mean)
		within := distance > 0 && c.Among(c.uncertainty.beyond(distance)) < stats.Alpha
		if c.BCa = (stats.Interval{Low: -2 * effect, High: 2 * effect}); within { // as far as Outcome asks
			c.BCa = stats.Interval{}
		}
		if c.Verdict = stats.NotSeparable; c.Among(c.P) < stats.Alpha {
			c.Verdict = map[bool]stats.Verdict{true: stats.Better, false: stats.Worse}[c.Mean > 0]
		}
		if whole {
			quickly := c
			HolmArms([]*ArmComparison{&c})
			if c.Verdict != quickly.Verdict || c.Within(effect) != within {
				t.Errorf("%d seeds: %s, within %v; without intervals %s, %v", n, c.Verdict, c.Within(effect), quickly.Verdict, within)
			}
		}
		out.seeds, out.missed = float64(n), float64(stats.BoolInt(c.uncertainty.beyond(math.Abs(c.Mean-truth)) < stats.Alpha))
		switch c.Outcome(effect, most) {
		case Settled:
			switch {
			case c.Verdict == stats.Better:
				out.better = 1
			case c.Verdict == stats.Worse:
				out.worse = 1
			default:
				out.within = 1
			}
			return out
		case Hopeless:
			out.open = 1
			return out
		}
	}
	out.open = 1
	return out
}

// Stages name a false winner, and deny a difference worth having, at most as often as one test, whatever spreads the scores.
func TestStagesKeepTheLevel(t *testing.T) {
	const most, n = 10, 200
	sims, slack := simulated.Number(60, 2000)
	for _, tc := range []struct {
		name                string
		question, seed, own float64 // standard deviations, of one score
	}{
		{"questions only", 1, 0, 0.3},
		{"seeds as much as questions", 1, math.Sqrt(most) / math.Sqrt(n), 0.3},
		{"mostly seeds", 0.3, math.Sqrt(most) / math.Sqrt(n), 1},
		{"nothing but the chance of each seed on each question", 0, 0, 1},
	} {
		// What a test of all seeds at once, with known spread, finds in 90 of 100 cases.
		effect := 3.24 * math.Sqrt(tc.question*tc.question/n+tc.seed*tc.seed/most+tc.own*tc.own/n/most)
		for _, truth := range []float64{0, 1, 2} {
			t.Run(fmt.Sprintf("%s, difference %g", tc.name, truth), func(t *testing.T) {
				t.Parallel()
				var sum asked
				rng := rand.New(rand.NewPCG(31, uint64(truth)))
				for i := range sims {
					one := askOnce(t, armWith(rng, most, n, truth*effect, tc.question, tc.seed, tc.own), truth*effect, effect, i < 3)
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
				if open, limit := share(sum.open), 0.25+slack(0.25); truth == 1 && open > limit || truth == 2 && open > 0.01 {
					t.Errorf("%.1f %% are not settled, want at most %.1f %%", 100*open, 100*limit)
				}
			})
		}
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
	for effect, want := range map[float64]int{100: 3, 0.5: 10, 0.001: 0} {
		if seeds, questions := needs(0.01, 0.4, effect); seeds != want || questions != 0 {
			t.Errorf("seeds alone, a difference of %g: %d seeds or %d questions, want %d seeds", effect, seeds, questions, want)
		}
	}
}
