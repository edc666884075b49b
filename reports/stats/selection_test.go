package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/simulated"
	"fulcrum/reports/page"
)

// checkpointsOf draws differences to a baseline [M][n] of the checkpoints of a run that learns nothing: each is the one
// before, moved on n questions, so that neighbours correlate by rho. The initial policy is the first.
func checkpointsOf(rng *rand.Rand, m, n int, rho float64) [][]float64 {
	out := make([][]float64, m)
	for k := range out {
		out[k] = make([]float64, n)
		for i := range out[k] {
			fresh := rng.NormFloat64()
			if k == 0 {
				out[k][i] = fresh
				continue
			}
			out[k][i] = rho*out[k-1][i] + math.Sqrt(1-rho*rho)*fresh
		}
	}
	return out
}

// A best checkpoint that is judged on the questions that chose it is a false winner in at most 5 % of the runs that learn
// nothing, however many checkpoints competed; uncorrected, in up to half of them.
//
//	go test ./reports -run BestOfManyCheckpoints -v      prints a table of docs/log/statistics.md
func TestTheBestOfManyCheckpointsIsNoFalseWinner(t *testing.T) {
	const n = 200
	sims, slack := simulated.Number(200, 4000)
	zeros := make([]float64, n)
	for k, tc := range []struct {
		epochs int
		rho    float64
	}{{5, 0.9}, {30, 0.99}, {30, 0.9}, {30, 0}} {
		rate := func(corrected bool) float64 {
			return simulated.Share(sims, uint64(k), func(rng *rand.Rand) bool {
				scores := checkpointsOf(rng, tc.epochs+1, n, tc.rho)
				best := scores[0]
				for _, s := range scores {
					if stat.Mean(s) > stat.Mean(best) {
						best = s
					}
				}
				c, err := DifferenceOf(best, zeros, nil, DefaultOptions())
				if err != nil {
					panic(err)
				}
				if corrected {
					c.ChosenFrom = len(scores)
				}
				return Names(&c)
			})
		}
		plain, corrected := rate(false), rate(true)
		t.Logf("| %d | %.2f | %.1f %% | %.1f %% |", tc.epochs, tc.rho, 100*plain, 100*corrected)
		if limit := 0.05 + slack(0.05); corrected > limit {
			t.Errorf("%d checkpoints that correlate by %.2f: %.1f %% false winners, want at most %.1f %%", tc.epochs, tc.rho,
				100*corrected, 100*limit)
		}
		if tc.epochs == 30 && tc.rho < 0.99 && plain < 0.15 {
			t.Errorf("%d checkpoints: %.1f %% false winners without correction: the simulation chooses nothing", tc.epochs, 100*plain)
		}
	}
}

// Questions about one image are not independent. With their clusters known, at most 6 % of equal policies are told apart.
//
//	go test ./reports -run Clusters -v      prints a table of docs/log/statistics.md
func TestClustersOfQuestionsAreNoFalseWinners(t *testing.T) {
	const n = 500
	sims, slack := simulated.Number(200, 4000)
	zeros := make([]float64, n)
	for k, tc := range []struct {
		size    int
		icc     float64
		unequal bool
	}{{5, 0.3, false}, {5, 0.3, true}, {5, 0, false}, {10, 0.3, true}} {
		rate := func(known bool) float64 {
			return simulated.Share(sims, uint64(k), func(rng *rand.Rand) bool {
				d, clusters := simulated.Clustered(rng, n, tc.size, tc.icc, tc.unequal)
				if !known {
					clusters = nil
				}
				c, err := DifferenceOf(d, zeros, clusters, DefaultOptions())
				if err != nil {
					panic(err)
				}
				return Names(&c)
			})
		}
		alone, known := rate(false), rate(true)
		sizes := fmt.Sprint(tc.size)
		if tc.unequal {
			sizes = fmt.Sprintf("1 to %d", 2*tc.size-1)
		}
		t.Logf("| %s | %.1f | %.1f %% | %.1f %% |", sizes, tc.icc, 100*alone, 100*known)
		if limit := 0.06 + slack(0.06); known > limit {
			t.Errorf("clusters of %s, correlation %.1f: %.1f %% false winners, want at most %.1f %%", sizes, tc.icc, 100*known, 100*limit)
		}
		if tc.icc > 0 && alone < 0.08 {
			t.Errorf("clusters of %s: %.1f %% false winners where clusters are not known: the simulation has none", sizes, 100*alone)
		}
	}
}

// Groups of one question change nothing, and groups of equal size are judged by their means.
func TestGroupings(t *testing.T) {
	x := []float64{1, 4, 2, 8, 5, 7}
	if g := NewGrouping([]int64{9, 8, 7, 6, 5, 4}); g.Clusters() != 0 || &g.Values(x)[0] != &x[0] || &g.sums(x)[0] != &x[0] {
		t.Errorf("questions of their own: %+v", g)
	}
	g := NewGrouping([]int64{3, 3, 7, 7, 1, 1})
	if got := fmt.Sprint(g.Values(x), g.sums(x)); got != "[2.5 5 6] [2.5 5 6]" {
		t.Errorf("equal groups: got %s, want their means", got)
	}
	// R: library(sandwich); sqrt(vcovCL(lm(x ~ 1), cluster = c(1,1,1,2,2,3), type = "HC0")) with G/(G-1):
	// residuals -3.5 -0.5 -2.5 | 3.5 0.5 | 2.5, sums -6.5, 4, 2.5; √(3/2 · (42.25 + 16 + 6.25)) / 6
	g = NewGrouping([]int64{1, 1, 1, 2, 2, 3})
	mean, se := g.MeanSE(x)
	if want := math.Sqrt(1.5*64.5) / 6; math.Abs(mean-4.5) > 1e-12 || math.Abs(se-want) > 1e-12 {
		t.Errorf("unequal groups: %.6f ± %.6f, want 4.5 ± %.6f", mean, se, want)
	}
	if got := stat.Mean(g.Values(x)); math.Abs(got-4.5) > 1e-12 {
		t.Errorf("the values' mean is %.6f, want that of the questions, 4.5", got)
	}
	if _, err := ComparePaired(x, make([]float64, 6), []int64{2, 2, 2, 2, 2, 2}, Quick()); err == nil ||
		!strings.Contains(err.Error(), "one cluster") {
		t.Errorf("a single cluster: got %v", err)
	}
	of := map[int64]string{10: "a", 11: "b", 12: "a", 14: ""}
	if got := fmt.Sprint(NumberedClusters([]int64{10, 11, 12, 13, 14}, of)); got != "[0 1 0 2 3]" {
		t.Errorf("got %s, want [0 1 0 2 3]", got)
	}
	if got := NumberedClusters([]int64{10, 11, 13, 14}, of); got != nil {
		t.Errorf("every question alone: got %v, want nil", got)
	}
}

// Where an interval covers less than it promises the report says so: at most 6 % of all intervals miss without a word,
// and samples that are neither small nor skewed are left in peace.
//
//	go test ./reports -run RoughIntervals -v      prints a table of docs/log/statistics.md
func TestRoughIntervalsSaySo(t *testing.T) {
	sims, slack := simulated.Number(300, 10_000)
	lognormal := Population{"lognormal", math.Exp(0.5), func(rng *rand.Rand) float64 { return math.Exp(rng.NormFloat64()) }}
	jumps := Population{"1 % of the questions jump", 0.01, func(rng *rand.Rand) float64 { return float64(BoolInt(rng.Float64() < 0.01)) }}
	skewed := Populations(t)[3] // rules that differ on few questions
	for k, tc := range []struct {
		Population
		n       int
		quiet   bool // is not to be called rough
		unsound bool // covers less than 92 %
	}{
		{lognormal, 50, false, true}, {lognormal, 200, false, false}, {lognormal, 1000, false, false},
		{jumps, 50, false, true}, {jumps, 200, false, true}, {jumps, 1000, false, false},
		{skewed, 200, false, false}, {skewed, 1000, false, false},
		{Population{"normal", 0, (*rand.Rand).NormFloat64}, 100, true, false},
		{Population{"exponential", 1, (*rand.Rand).ExpFloat64}, 500, true, false},
	} {
		missed, rough, silent := 0, 0, 0
		zeros := make([]float64, tc.n)
		for i := range sims {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			scores := make([]float64, tc.n)
			for j := range scores {
				scores[j] = tc.Draw(rng)
			}
			c, err := DifferenceOf(scores, zeros, nil, DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			miss := c.Interval.Excludes(tc.Mean)
			missed, rough, silent = missed+BoolInt(miss), rough+BoolInt(c.Rough != ""), silent+BoolInt(miss && c.Rough == "")
		}
		of := func(n int) float64 { return float64(n) / float64(sims) }
		t.Logf("| %s | %s | %.1f %% | %.1f %% | %.1f %% |", tc.Name, page.Thousands(tc.n), 100-100*of(missed), 100*of(rough),
			100*of(silent))
		if limit := 0.06 + slack(0.06); of(silent) > limit {
			t.Errorf("%s, %d questions: %.1f %% of the intervals miss without a word, want at most %.1f %%", tc.Name, tc.n, 100*of(silent),
				100*limit)
		}
		if tc.quiet && of(rough) > 0.02+slack(0.02) {
			t.Errorf("%s, %d questions: %.1f %% are called rough", tc.Name, tc.n, 100*of(rough))
		}
		if tc.unsound && (of(missed) < 0.08 || of(rough) < 0.99) {
			t.Errorf("%s, %d questions: %.1f %% miss, %.1f %% are called rough", tc.Name, tc.n, 100*of(missed), 100*of(rough))
		}
	}
}

// The interval of a comparison is the same in every family, and no line shows one without 0 beside "not separable" and gives no reason.
func TestIntervalsAreThoseOfTheirQuestion(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	alone := 0
	for range 40 {
		var family []*Paired
		for k := range 5 {
			d := make([]float64, 120)
			for i := range d {
				d[i] = rng.NormFloat64() + 0.06*float64(k)
			}
			opt := Quick()
			p, err := PairedDifference(d, make([]float64, len(d)), nil, Correction{ChosenFrom: 10 * (k % 2)}, opt)
			if err != nil {
				t.Fatal(err)
			}
			family = append(family, &p)
		}
		var by []Paired
		for _, p := range family {
			Settle([]*Paired{p})
			by = append(by, *p)
		}
		Settle(family)
		for i, p := range family {
			if p.Interval != by[i].Interval || p.IntervalLevel != by[i].IntervalLevel || p.Questions < by[i].Questions {
				t.Errorf("%+v alone, %+v among 5", by[i].Interval, p.Interval)
			}
			text := p.Sentence("a", "b", "reward")
			if p.Verdict != NotSeparable && (!p.Interval.Excludes(0) || p.PHolm >= 0.05) {
				t.Errorf("a winner beyond its numbers: %s", text)
			}
			named := strings.Contains(text, "the permutation test does not agree") || strings.Contains(text,
				"the bootstrap interval holds 0") || strings.Contains(text, openAmong)
			alone += BoolInt(strings.Contains(text, openAmong))
			if strings.Contains(text, openAmong) && VerdictCell(*p) != "not separable (of 5)" {
				t.Errorf("%s: the table has %s", text, VerdictCell(*p))
			}
			if p.Verdict == NotSeparable && p.Interval.Excludes(0) != named {
				t.Errorf("no reason is given, or one too many: %s", text)
			}
			if !strings.Contains(text, "for 5 comparisons") {
				t.Errorf("what it is corrected for is missing: %s", text)
			}
		}
	}
	if alone < 10 {
		t.Errorf("%d differences stand alone and not among 5: want many", alone)
	}
	// One step of Holm's at a time: p-values of 0.01, 0.02 and 0.03 among 5 are multiplied by 5, 4 and 3, and the last
	// by what makes it no smaller than the one before.
	adjusted, steps := HolmSteps([]float64{0.03, 0.01, 0.02}, 5)
	if got := fmt.Sprintf("%.2f %.2f", adjusted, steps); got != "[0.09 0.05 0.08] [3.00 5.00 4.00]" {
		t.Errorf("got %s", got)
	}
	adjusted, steps = HolmSteps([]float64{0.03, 0.029}, 2)
	if got := fmt.Sprintf("%.3f %.3f", adjusted, steps); got != "[0.058 0.058] [1.933 2.000]" {
		t.Errorf("got %s", got)
	}
}
