package arms

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// armWith draws scores [seeds][n]: a question's difficulty, a seed's quality, and their chance.
func armWith(rng *rand.Rand, seeds, n int, mean, questionSD, seedSD, noiseSD float64) Arm {
	a := Arm{QueryIDs: make([]int64, n)}
	question := make([]float64, n)
	for i := range question {
		a.QueryIDs[i] = int64(i)
		question[i] = questionSD * rng.NormFloat64()
	}
	for s := range seeds {
		quality := mean + seedSD*rng.NormFloat64()
		row := make([]float64, n)
		for i := range row {
			row[i] = quality + question[i] + noiseSD*rng.NormFloat64()
		}
		a.Seeds, a.Scores = append(a.Seeds, int64(s)), append(a.Scores, row)
	}
	return a
}

// zeroArm scores 0 everywhere with the same seeds and questions.
func zeroArm(like Arm) Arm {
	z := Arm{Seeds: like.Seeds, QueryIDs: like.QueryIDs}
	for range like.Scores {
		z.Scores = append(z.Scores, make([]float64, len(like.QueryIDs)))
	}
	return z
}

// Where only seeds differ the interval is Student's over seeds, up to the tails of 200 questions; where
// seeds agree, over questions.
func TestArmIntervalsAtTheirLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	student := func(x []float64) (half, p float64) {
		mean, se := stat.MeanSE(x)
		d := distuv.StudentsT{Sigma: 1, Nu: float64(len(x) - 1)}
		return d.Quantile(0.975) * se, 2 * d.CDF(-math.Abs(mean)/se)
	}
	for _, seeds := range []int{2, 3, 5} {
		a := armWith(rng, seeds, 200, 0.5, 0, 1, 0)
		c, err := a.Against(zeroArm(a), quick())
		if err != nil {
			t.Fatal(err)
		}
		half, p := student(c.PerSeed)
		if got := (c.Interval.High - c.Interval.Low) / 2; math.Abs(got-half) > 0.01*half || math.Abs(c.P-p) > 0.01*p {
			t.Errorf("%d seeds, no question spread: half width %.5g and p %.5g, Student has %.5g and %.5g", seeds, got, c.P, half, p)
		}
		a = armWith(rng, seeds, 200, 0.1, 1, 0, 0)
		if c, err = a.Against(zeroArm(a), quick()); err != nil {
			t.Fatal(err)
		}
		half, p = student(a.Scores[0])
		if got := (c.Interval.High - c.Interval.Low) / 2; math.Abs(got-half) > 1e-9 || math.Abs(c.P-p) > 1e-9 || c.SeedSE > 1e-9 {
			t.Errorf("%d equal seeds: half width %.5g and p %.5g, Student has %.5g and %.5g; seed se %g", seeds, got, c.P, half, p,
				c.SeedSE)
		}
	}
}

// The split of a hand-made table: question effects ±1, seed effects ±2, no rest.
//
//	>>> scores = [[-3, -1], [1, 3]]: seed means -2 and 2, question means -1 and 1
func TestArmSpreadIsSplit(t *testing.T) {
	s := seedPartOf([][]float64{{-3, -1}, {1, 3}})
	golden.Close(t, []float64{s.sd, s.means, s.noise}, []float64{math.Sqrt(8), 4, 0}, 1e-12)
	s = seedPartOf([][]float64{{1, -1}, {-1, 1}}) // nothing but chance: Σ r² = 4, one degree of freedom, 2·2 scores
	golden.Close(t, []float64{s.sd, s.means, s.noise}, []float64{0, 0, 1}, 1e-12)
}

func TestArmsArePairedByQuestionAndSeed(t *testing.T) {
	a := Arm{Seeds: []int64{1, 2}, QueryIDs: []int64{7, 8, 9}, Scores: [][]float64{{1, 2, 3}, {2, 3, 4}}}
	b := Arm{Seeds: []int64{1, 2}, QueryIDs: []int64{9, 8, 7}, Scores: [][]float64{{2, 2, 2}, {1, 1, 1}}}
	c, err := a.Against(b, quick())
	if err != nil {
		t.Fatal(err)
	}
	golden.Close(t, append(c.PerSeed, c.Mean, c.SD, c.SeedSD), []float64{0, 2, 1, 1, math.Sqrt2}, 1e-12)
	b.Seeds = []int64{3, 4}
	if c, err = a.Against(b, quick()); err != nil || c.BySeed || len(c.PerSeed) != 0 {
		t.Errorf("other seeds: %+v, %v", c, err)
	}
	golden.Close(t, []float64{c.Mean, c.SeedSD}, []float64{1, 1}, 1e-12) // √(½ + ½)
	b.QueryIDs = []int64{9, 8, 6}
	if _, err = a.Against(b, quick()); err == nil || !strings.Contains(err.Error(), "query 7 was scored on one side only") {
		t.Errorf("got %v", err)
	}
}

func TestArmSentences(t *testing.T) {
	base := ArmComparison{Paired: stats.Paired{N: 1000, Mean: 0.0123, Interval: stats.Interval{Low: 0.0041, High: 0.0205},
		PHolm: 0.0041, Level: 0.95, Changed: 300}, Seeds: 5, SeedsOf: 5}
	for _, tc := range []struct {
		name string
		edit func(*ArmComparison)
		want string
	}{
		{"better", func(*ArmComparison) {}, "RCE is better than init: +0.0123 reward per question, 95% interval +0.0041 to +0.0205, " +
			"1,000 questions, 5 seeds, p = 0.0041"},
		{"an open one says what it would take", func(c *ArmComparison) {
			c.Mean, c.Interval, c.PHolm, c.Questions, c.SeedsNeeded = 0.001, stats.Interval{Low: -0.002, High: 0.004}, 0.4, 12345, 23
		}, "RCE is not separable from init: +0.0010 reward per question, 95% interval −0.0020 to +0.0040, 1,000 questions, 5 seeds, p = " +
			"0.40; a difference of this size would take about 13,000 questions or 23 seeds to settle"},
		{"other seeds", func(c *ArmComparison) { c.SeedsOf = 1 },
			"RCE is better than init: +0.0123 reward per question, 95% interval +0.0041 to +0.0205, 1,000 questions, 5 against 1 seed, " +
				"p = 0.0041"},
		{"equal scores", func(c *ArmComparison) { c.Changed = 0 }, "RCE and init score the same on every one of 1,000 questions"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := base
			tc.edit(&c)
			c.BCa = c.Interval
			c.Verdict = stats.VerdictOf(c.Paired)
			if got := c.Sentence("RCE", "init", "reward"); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Whatever the shares of questions, seeds and chance, at most 5 % of equal arms are told apart.
func TestArmIntervalsCover(t *testing.T) {
	sims, n := 200, 100
	if !testing.Short() {
		sims, n = 4000, 200
	}
	for _, tc := range []struct {
		name                string
		question, seed, own float64 // standard deviations; those of question and own are over √n
	}{
		{"no seed spread", 1, 0, 0.3},
		{"nothing but chance", 0, 0, 1},
		{"seeds as large as questions", 1, 1, 1},
		{"mostly seeds", 0.3, 2, 1},
		{"much chance", 0.3, 0.5, 3},
	} {
		for _, seeds := range []int{3, 5} {
			for _, bySeed := range []bool{true, false} {
				rng := rand.New(rand.NewPCG(13, uint64(seeds)))
				missed := 0
				root := math.Sqrt(float64(n))
				for range sims {
					a := armWith(rng, seeds, n, 0, tc.question, tc.seed*math.Sqrt(float64(seeds))/root, tc.own)
					b := zeroArm(a)
					if !bySeed {
						b = armWith(rng, seeds, n, 0, 0, tc.seed*math.Sqrt(float64(seeds))/root, tc.own)
						for s := range b.Seeds {
							b.Seeds[s] += 100
						}
					}
					e := armErrorOf(a, b, bySeed)
					if mean := stat.Mean(overSeeds(a.Scores)) - stat.Mean(overSeeds(b.Scores)); e.beyond(math.Abs(mean)) < 0.05 {
						missed++
					}
				}
				share := float64(missed) / float64(sims)
				t.Logf("%s, %d seeds, by seed %v: covers %.1f %%", tc.name, seeds, bySeed, 100-100*share)
				if limit := 0.05 + 3*math.Sqrt(0.05*0.95/float64(sims)); share > limit {
					t.Errorf("%s, %d seeds, by seed %v: %.1f %% of 95 %% intervals miss", tc.name, seeds, bySeed, 100*share)
				}
			}
		}
	}
}

// seededRun is a run of one seed that ended with these rewards.
func seededRun(seed int, scores ...float64) *record.Run {
	return &record.Run{Dir: "run" + string(rune('0'+seed)), Tree: map[string]any{"seed": seed}, Evaluations: []record.Evaluation{
		eval("dev", "similarity", "", 0, .1, .2, .3), eval("dev", "grpo", "grpo", 1, 9, 9, 9), eval("dev", "best", "grpo", 1, scores...)}}
}

func TestCompareArmsReadsWhatTheRunsEndedWith(t *testing.T) {
	a := []*record.Run{seededRun(2, .5, .6, .7), seededRun(1, .3, .4, .5)}
	b := []*record.Run{seededRun(1, .1, .2, .3), seededRun(2, .2, .3, .4)}
	c, err := compareArms(a, b, "dev", "reward")
	if err != nil {
		t.Fatal(err)
	}
	golden.Close(t, append(c.PerSeed, c.Mean), []float64{0.2, 0.3, 0.25}, 1e-12)
	arm, err := ArmOf(a, "dev", "reward", "similarity")
	if err != nil {
		t.Fatal(err)
	}
	golden.Close(t, arm.QueryScores(), []float64{.1, .2, .3}, 1e-12)
	for _, tc := range []struct {
		name string
		a    []*record.Run
		want string
	}{
		{"no run", nil, "an arm without runs"},
		{"a seed twice", []*record.Run{a[0], a[0]}, "run2 and run2 have one seed (2)"},
		{"no such evaluation", []*record.Run{{Dir: "empty", Tree: map[string]any{"seed": 1}}},
			"empty: no evaluation of a trained policy on dev by reward"},
		{"no seed", []*record.Run{{Dir: "odd"}, a[0]}, "odd: its config names no seed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := compareArms(tc.a, b, "dev", "reward"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want …%s…", err, tc.want)
			}
		})
	}
}

// compareArms compares what the runs of two arms ended with, on a split by a metric: a against b. The
// runs of an arm differ in their seed only. HolmArms corrects several comparisons for their number.
func compareArms(a, b []*record.Run, split, metric string) (ArmComparison, error) {
	this, err := ArmOf(a, split, metric, "")
	if err != nil {
		return ArmComparison{}, err
	}
	reference, err := ArmOf(b, split, metric, "")
	if err != nil {
		return ArmComparison{}, err
	}
	return this.Against(reference, stats.DefaultOptions())
}

// A recorded order that lists the best first is an oracle: arms are not compared with it.
func TestBaselinesOfABeamFile(t *testing.T) {
	for first, want := range map[float64]string{1: "recorded order (best first)", 0: "recorded order"} {
		var evals []record.Evaluation
		for metric, score := range map[string]float64{"recorded_reward": 0.7, "top1_accuracy": first} {
			evals = append(evals, record.Evaluation{Split: "val", Policy: record.PolicyRecorded, Metric: metric, QueryIDs: []int64{1, 2},
				Scores: []float64{score, 1}})
		}
		baselines := BaselinesOf([]*record.Run{{Evaluations: evals}}, "val", "recorded_reward")
		yards, _ := ArmYardsticks(baselines)
		if len(baselines) != 1 || baselines[0].Name != want || (len(yards) == 0) != (first == 1) {
			t.Errorf("top-1 accuracy %g: %+v, compared with %+v", first, baselines, yards)
		}
	}
}

// Arms are not held against a baseline that is worse than random.
func TestArmYardsticks(t *testing.T) {
	baseline := func(name string, mean float64) Arm {
		a := armWith(rand.New(rand.NewPCG(1, 2)), 1, 100, mean, 1, 0, 0)
		for i := range a.Scores[0] {
			a.Scores[0][i] += 0.01 * float64(i*len(name)%5)
		}
		a.Name = name
		return a
	}
	for _, tc := range []struct {
		similarity  float64
		yards, warn string
	}{{0.5, "similarity", ""}, {0.1, "random", "Similarity is worse than drawing at random here: "}} {
		yards, warning := ArmYardsticks([]Arm{baseline("random", 0.3), baseline("similarity", tc.similarity), baseline("initial policy", 0.4)})
		if len(yards) != 1 || yards[0].Short != tc.yards || !strings.HasPrefix(warning, tc.warn) || (warning == "") != (tc.warn == "") {
			t.Errorf("similarity at %g: yardsticks %v, %q; want %s, %q", tc.similarity, yards, warning, tc.yards, tc.warn)
		}
	}
}

// Arms that score the same on every question are told where their best checkpoints come from.
func TestBestOf(t *testing.T) {
	of := func(phases ...string) (runs []*record.Run) {
		for _, phase := range phases {
			runs = append(runs, &record.Run{Summary: &record.Summary{Best: &record.BestSummary{Phase: phase}}})
		}
		return runs
	}
	for want, runs := range map[string][]*record.Run{
		": the best checkpoint of every run is of rce":                        of("rce", "rce"),
		": the best checkpoint of every run is the policy that it began with": of(record.PolicyInit, record.PolicyInit),
		"": append(of("rce"), &record.Run{}),
	} {
		if got := bestOf(runs); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := bestOf(of("rce", "grpo")); got != "" {
		t.Errorf("two phases: %q", got)
	}
}

// Where seeds differ by more than the difference, no number of questions settles it: none is named.
func TestQuestionsDoNotAverageSeedsAway(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	a := armWith(rng, 5, 120, 0.2, 0.3, 0.5, 0.3)
	c, err := a.Against(zeroArm(a), quick())
	if err != nil {
		t.Fatal(err)
	}
	if HolmArms([]*ArmComparison{&c}); c.Verdict != stats.NotSeparable || c.Questions != 0 {
		t.Errorf("%s, %d questions, %d seeds", c.Verdict, c.Questions, c.SeedsNeeded)
	}
}

// Of the spread over two seeds too little is known to say how many questions would settle a difference: their interval is not a matter
// of questions.
func TestTwoSeedsNameNoQuestions(t *testing.T) {
	for seeds, want := range map[int]bool{2: false, 3: true} {
		a := armWith(rand.New(rand.NewPCG(5, 6)), seeds, 60, 0.05, 0, 0, 0.5)
		c, err := a.Against(zeroArm(a), quick())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(c.Sentence("A", "B", "reward"), "would take about"); got != want {
			t.Errorf("%d seeds: %s", seeds, c.Sentence("A", "B", "reward"))
		}
	}
}
