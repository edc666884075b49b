package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
)

func Quick() Options {
	opt := DefaultOptions()
	opt.Resamples = 1000
	return opt
}

// Closed forms on a sample small enough to check by hand.
//
//	>>> from scipy import stats; d = [.3, -.1, .4, .2, 0, .5, -.2, .1]
//	>>> stats.ttest_1samp(d, 0).confidence_interval()
//	(-0.05476, 0.35476)
func TestPairedClosedForms(t *testing.T) {
	d := []float64{.3, -.1, .4, .2, 0, .5, -.2, .1}
	p, err := ComparePaired(d, make([]float64, len(d)), nil, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	sd := math.Sqrt(0.42 / 7)                                 // Σ(d - 0.15)² = 0.42
	want := []float64{0.15, sd, sd / math.Sqrt(8), 0.15 / sd} // t quantile at 7 degrees: 2.364624
	golden.Close(t, []float64{p.Mean, p.SD, p.SE, p.Effect}, want, 1e-12)
	golden.Close(t, []float64{p.Interval.Low, p.Interval.High}, []float64{0.15 - 2.364624*p.SE, 0.15 + 2.364624*p.SE}, 1e-6)
	// 2⁷ sign patterns; |sum| ≥ 1.2 for 22 of them, counted by hand-written enumeration below.
	as := 0
	for k := range 1 << 8 {
		sum := 0.0
		for i, v := range d {
			if k>>i&1 == 1 {
				v = -v
			}
			sum += v
		}
		if math.Abs(sum) >= 1.2-1e-9 {
			as++
		}
	}
	golden.Close(t, []float64{p.P}, []float64{float64(as) / 256}, 1e-12)
	if p.Changed != 7 || p.N != 8 || p.Verdict != NotSeparable {
		t.Errorf("got %+v", p)
	}
}

func TestMonteCarloPermutationNearsTheExactOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		d := make([]float64, 13) // 8192 patterns: exact under 10,000 resamples, Monte Carlo under 8000
		for i := range d {
			d[i] = rng.NormFloat64() + 0.4
		}
		opt := DefaultOptions()
		exact, _ := SignFlip(d, opt)
		opt.Resamples = 8000
		got, _ := SignFlip(d, opt)
		se := math.Sqrt(exact * (1 - exact) / 8000)
		if math.Abs(got-exact-2*se) > 4*se+1e-3 {
			t.Errorf("Monte Carlo %.4f, want exact %.4f and two standard errors more, within four (%.4f each)", got, exact, se)
		}
	}
}

func TestDegenerateComparisons(t *testing.T) {
	same := []float64{1, 2, 3}
	p, err := ComparePaired(same, same, nil, Quick())
	if err != nil {
		t.Fatal(err)
	}
	if p.P != 1 || p.Interval != (Interval{}) || p.BCa != (Interval{}) || p.Verdict != NotSeparable || p.Questions != 0 {
		t.Errorf("equal scores: %+v", p)
	}
	if got, want := p.Sentence("best", "similarity", "reward"),
		"best and similarity score the same on every one of 3 questions; rough: 3 independent questions are few, and what happens on "+
			"less than 100% of all may not show"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, tc := range []struct {
		name string
		a, b []float64
		want string
	}{
		{"different lengths", []float64{1}, nil, "1 scores against 0"},
		{"one question", []float64{1}, []float64{0}, "want at least 2"},
		{"a score that is no number", []float64{1, math.NaN()}, []float64{0, 0}, "question 1: scores NaN and 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := ComparePaired(tc.a, tc.b, nil, Quick()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want …%s…", err, tc.want)
			}
		})
	}
}

// TestBootstrapWhereItDecides: the bootstrap's interval is drawn where the p-value leaves a verdict open, and left out of JSON elsewhere.
func TestBootstrapWhereItDecides(t *testing.T) {
	for shift, decides := range map[float64]bool{0: false, 1: true} {
		rng := rand.New(rand.NewPCG(3, 4))
		a, b := make([]float64, 60), make([]float64, 60)
		for i := range a {
			a[i], b[i] = rng.NormFloat64()+shift, rng.NormFloat64()
		}
		p, err := ComparePaired(a, b, nil, Quick())
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if (p.BCa != Interval{}) != decides || strings.Contains(string(text), "bca") != decides || (p.Verdict == Better) != decides {
			t.Errorf("shift %g: p %g, %s", shift, p.PHolm, text)
		}
	}
}

func TestBootstrapIsSeeded(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	x := make([]float64, 201) // odd: the last draw of a resample is a single one
	for i := range x {
		x[i] = rng.ExpFloat64()
	}
	opt := Quick()
	a, b := BootstrapBCa(x, opt), BootstrapBCa(x, opt)
	if a != b {
		t.Errorf("equal seeds: %v and %v", a, b)
	}
	opt.Seed++
	if c := BootstrapBCa(x, opt); c == a {
		t.Errorf("another seed gave the same interval %v", c)
	}
	if mean, _ := stat.MeanSE(x); !(a.High-mean > mean-a.Low) {
		t.Errorf("a right-skewed sample: interval %v around %.4f should reach further up", a, mean)
	}
}

// Zero-inflated differences like those of greedy selections: most questions keep their score.
func zeroInflated(rng *rand.Rand, n int, shift float64) []float64 {
	d := make([]float64, n)
	for i := range d {
		if rng.Float64() < 0.2 {
			d[i] = math.Copysign(math.Pow(rng.Float64(), 3), rng.Float64()-0.5) + shift*5
		}
	}
	return d
}

// 600 simulated comparisons: the share of intervals that miss has a standard error of 0.9 %.
func TestIntervalsCoverAndVerdictsAreHonest(t *testing.T) {
	const sims, n = 600, 300
	for _, tc := range []struct {
		name string
		draw func(*rand.Rand, int, float64) []float64
	}{
		{"normal", func(rng *rand.Rand, n int, shift float64) []float64 {
			d := make([]float64, n)
			for i := range d {
				d[i] = rng.NormFloat64() + shift
			}
			return d
		}},
		{"zero-inflated", zeroInflated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			missed, winners := 0, 0
			zeros := make([]float64, n)
			for range sims {
				p, err := ComparePaired(tc.draw(rng, n, 0), zeros, nil, Quick())
				if err != nil {
					t.Fatal(err)
				}
				if p.Interval.Excludes(0) {
					missed++
				}
				if p.Verdict != NotSeparable {
					winners++
				}
			}
			if share := float64(missed) / sims; share < 0.025 || share > 0.085 {
				t.Errorf("%.1f %% of 95 %% intervals miss the truth", 100*share)
			}
			if share := float64(winners) / sims; share > 0.08 {
				t.Errorf("%.1f %% false winners", 100*share)
			}
		})
	}
}

// The number of questions that a comparison names settles 80 % of comparisons of that effect, at the level that it is corrected to:
// (1.95996 + 0.84162)² / 0.09 = 87.2 alone, (3.07821 + 0.84162)² / 0.09 = 170.7 as the first of three, chosen from 8 checkpoints.
func TestQuestionsNeededHasItsPower(t *testing.T) {
	sims, chance := 250, 0.08 // standard error 0.025
	if testing.Short() {
		sims, chance = 100, 0.13
	}
	for _, tc := range []struct{ chosen, size, want int }{{0, 1, 88}, {8, 3, 171}} {
		n := QuestionsNeeded(0.3, 1, 0.05/float64(max(tc.chosen, 1)*tc.size), 0.8)
		if n != tc.want {
			t.Errorf("chosen from %d, among %d: %d questions, want %d", tc.chosen, tc.size, n, tc.want)
		}
		rng := rand.New(rand.NewPCG(7, 8))
		found := 0
		var last Paired
		for range sims {
			d := make([]float64, n)
			for i := range d {
				d[i] = rng.NormFloat64() + 0.3
			}
			p, err := PairedDifference(d, make([]float64, n), nil, Correction{ChosenFrom: tc.chosen}, DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			if SettleAmong([]*Paired{&p}, tc.size, nil); p.Verdict == Better {
				found++
			}
			last = p
		}
		share := float64(found) / float64(sims)
		t.Logf("chosen from %d, among %d: power %.3f with %d questions", tc.chosen, tc.size, share, n)
		if math.Abs(share-0.8) > chance {
			t.Errorf("chosen from %d, among %d: power %.3f, want about 0.8", tc.chosen, tc.size, share)
		}
		if want := QuestionsNeeded(last.Mean, last.SD, 0.05/float64(max(tc.chosen, 1)*tc.size), 0.8); last.Questions != want {
			t.Errorf("chosen from %d, among %d: the comparison names %d questions, want %d", tc.chosen, tc.size, last.Questions, want)
		}
	}
	if got := QuestionsNeeded(0, 1, 0.05, 0.8); got != 0 {
		t.Errorf("no difference: got %d, want 0", got)
	}
}

// R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
func TestHolm(t *testing.T) {
	golden.Close(t, Holm([]float64{0.01, 0.04, 0.03, 0.005}), []float64{0.03, 0.06, 0.06, 0.02}, 1e-12)
	golden.Close(t, Holm(nil), nil, 0)
	golden.Close(t, Holm([]float64{0.7, 0.8}), []float64{1, 1}, 0)
}

func TestVerdictSentences(t *testing.T) {
	base := Paired{N: 1000, Mean: 0.01913, Interval: Interval{0.0105, 0.0279}, P: 0.0001, PHolm: 0.0001, Level: 0.95, Changed: 300}
	for _, tc := range []struct {
		name string
		edit func(*Paired)
		want string
	}{
		{"better", func(p *Paired) {}, "best is better than similarity: +0.0191 reward per question, 95% interval +0.0105 to +0.0279, " +
			"1,000 questions, p < 0.001"},
		{"worse", func(p *Paired) { p.Mean, p.Interval, p.BCa = -0.02, Interval{-0.03, -0.01}, Interval{-0.03, -0.01} },
			"best is worse than similarity: −0.020 reward per question, 95% interval −0.030 to −0.010, 1,000 questions, p < 0.001"},
		{"an open one says what it would take", func(p *Paired) {
			p.Mean, p.Interval, p.PHolm, p.Questions = 0.0012, Interval{-0.004, 0.006}, 0.62, 12345
		}, "best is not separable from similarity: +0.0012 reward per question, 95% interval −0.0040 to +0.0060, 1,000 questions, p = " +
			"0.62; a difference of this size would take about 13,000 questions to settle"},
		{"the bootstrap must agree", func(p *Paired) { p.BCa.Low = -0.0001 },
			"best is not separable from similarity: +0.0191 reward per question, 95% interval +0.0105 to +0.0279, 1,000 questions, p < " +
				"0.001; the bootstrap interval holds 0"},
		{"a p-value that is the least of its patterns", func(p *Paired) { p.PHolm, p.PFloor = 0.0024, true },
			"best is better than similarity: +0.0191 reward per question, 95% interval +0.0105 to +0.0279, 1,000 questions, p ≤ 0.0024"},
		{"the permutation test must agree", func(p *Paired) { p.PHolm = 0.08 },
			"best is not separable from similarity: +0.0191 reward per question, 95% interval +0.0105 to +0.0279, 1,000 questions, p = " +
				"0.080; the permutation test does not agree"},
		{"clusters, and what it is corrected for", func(p *Paired) { p.Clusters, p.ChosenFrom, p.Family = 420, 31, 3 },
			"best is better than similarity: +0.0191 reward per question, 95% interval +0.0105 to +0.0279, 1,000 questions in 420 " +
				"clusters, p < 0.001; corrected for 31 checkpoints, p for 3 comparisons"},
		{"a rough one", func(p *Paired) { p.Rough = "only 7 of 1,000 changed" },
			"best is better than similarity: +0.0191 reward per question, 95% interval +0.0105 to +0.0279, 1,000 questions, p < 0.001; " +
				"rough: only 7 of 1,000 changed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := base
			p.BCa = p.Interval
			tc.edit(&p)
			p.Verdict = VerdictOf(p)
			if got := p.Sentence("best", "similarity", "reward"); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func BenchmarkComparePaired(b *testing.B) {
	d := zeroInflated(rand.New(rand.NewPCG(1, 1)), 1000, 0.003)
	zeros := make([]float64, len(d))
	for b.Loop() {
		if _, err := ComparePaired(d, zeros, nil, DefaultOptions()); err != nil {
			b.Fatal(err)
		}
	}
}

// In a large family the least p-value that the resamples of one comparison give is above what Holm asks for: more are drawn.
func TestLargeFamilies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float64, 30)
	for i := range x {
		x[i] = 1 + 0.1*rng.NormFloat64()
	}
	family := make([]*Paired, 180)
	for i := range family {
		p, err := PairedDifference(x, make([]float64, len(x)), nil, Correction{}, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		family[i] = &p
	}
	Settle(family)
	for i, p := range family {
		if p.Verdict != Better || p.PHolm >= 0.05 {
			t.Fatalf("comparison %d: %s, p %g", i, p.Verdict, p.PHolm)
		}
	}
}

// TestSaddlepointIsTheBootstrap: where resampling would take too long, quantiles are those of what it would have drawn, to six standard
// errors of 200,000 resamples, and half a step where means have steps.
func TestSaddlepointIsTheBootstrap(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, tc := range []struct {
		name string
		step float64
		draw func() float64
	}{
		{"normal", 0, func() float64 { return rng.NormFloat64() + 0.3 }},
		{"skewed", 0, func() float64 { return rng.ExpFloat64() * rng.ExpFloat64() }},
		{"zero-inflated", 0, func() float64 { return zeroInflated(rng, 1, 0.05)[0] }},
		{"thirds", 1. / 3, func() float64 { return float64(rng.IntN(5)-1) / 3 }},
		{"one in twenty", 1, func() float64 { return float64(rng.IntN(20) / 19) }},
	} {
		x := make([]float64, 300)
		for i := range x {
			x[i] = tc.draw()
		}
		mean, se := stat.MeanSE(x)
		squares, _ := powers(x, mean)
		means := resampledMeans(x, Options{Resamples: 200_000, Seed: 1})
		slices.Sort(means)
		for _, z := range []float64{-3, -1.5, 1.5, 3} {
			p := distuv.UnitNormal.CDF(z)
			most := 6*math.Sqrt(p*(1-p)/200_000)/distuv.UnitNormal.Prob(z)*se + tc.step/2/300
			if got, want := mean+saddlepoint(x, mean, math.Sqrt(squares), z), sortedQuantile(means, p); math.Abs(got-want) > most {
				t.Errorf("%s at z %g: %.5f, drawn %.5f, want within %.5f", tc.name, z, got, want, most)
			}
		}
	}
	x, opt := make([]float64, 400), Options{Level: 0.999, Resamples: maxDraws / 400, Seed: 1}
	for i := range x {
		x[i] = rng.ExpFloat64()
	}
	drawn := BootstrapBCa(x, opt)
	opt.Resamples++
	got := BootstrapBCa(x, opt)
	if _, se := stat.MeanSE(x); got == drawn || math.Abs(got.Low-drawn.Low) > 0.2*se || math.Abs(got.High-drawn.High) > 0.3*se {
		t.Errorf("one resample more, without drawing: %v, drawn %v", got, drawn)
	}
}
