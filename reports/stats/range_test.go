package stats

import (
	"math/rand/v2"
	"testing"
)

// Intervals of bounded scores end where the scores do, hold the truth exactly as often as those that go beyond, and say that they were
// cut. Verdicts are the same. The log has what docs/statistics.md says.
func TestIntervalsEndWhereScoresDo(t *testing.T) {
	samples := 4000
	if testing.Short() {
		samples = 400
	}
	random := rand.New(rand.NewPCG(29, 8))
	accuracy := func(p float64) float64 { // of VQA: thirds
		score := 0.0
		for range 3 {
			if random.Float64() < p {
				score += 1. / 3
			}
		}
		return min(score, 1)
	}
	seen := 0
	for _, n := range []int{2, 3, 5, 10, 30, 100} {
		beyond, cut, mean := 0, 0, 0
		for range samples {
			p, q := random.Float64(), random.Float64()
			a, b := make([]float64, n), make([]float64, n)
			for i := range a {
				a[i], b[i] = accuracy(p), accuracy(q)
			}
			opt := Options{Level: 0.95, Resamples: 200, Power: 0.8, Seed: 1}
			free, err := ComparePaired(a, b, nil, opt)
			if err != nil {
				t.Fatal(err)
			}
			opt.Most = 1
			bound, err := ComparePaired(a, b, nil, opt)
			if err != nil {
				t.Fatal(err)
			}
			i, j := free.Interval, bound.Interval
			leaves := i.Low < -1 || i.High > 1
			if j.Low < -1 || j.High > 1 || bound.BCa.Low < -1 || bound.BCa.High > 1 || bound.Cut != leaves {
				t.Fatalf("%v and %v: interval %v of %v, cut %v", a, b, j, i, bound.Cut)
			}
			for range 5 { // any difference that there can be
				if x := 2*random.Float64() - 1; i.Excludes(x) != j.Excludes(x) {
					t.Fatalf("%v excludes %g: %v, and %v: %v", i, x, i.Excludes(x), j, j.Excludes(x))
				}
			}
			if free.Verdict != bound.Verdict || free.P != bound.P {
				t.Fatalf("%v and %v: %s with p %g, cut %s with %g", a, b, free.Verdict, free.P, bound.Verdict, bound.P)
			}
			if seen++; leaves {
				beyond++
			}
			m, whole := MeanInterval(a, 0.95, -100, 100)
			_, within := MeanInterval(a, 0.95, 0, 1)
			if within.Low < 0 || within.High > 1 || within.Low > m || within.High < m {
				t.Fatalf("the mean %g of %v has the interval %v", m, a, *within)
			}
			if *whole != *within {
				mean++
			}
			if bound.Cut {
				cut++
			}
		}
		t.Logf("%3d questions: Student's interval leaves the scale for %.1f%% of the differences and %.1f%% of the means", n,
			100*float64(beyond)/float64(samples), 100*float64(mean)/float64(samples))
	}
	if seen != 6*samples {
		t.Errorf("%d comparisons", seen)
	}
	one, err := ComparePaired([]float64{1, 0}, []float64{0, 0}, nil, Options{Level: 0.95, Resamples: 200, Power: 0.8, Most: 1})
	if err != nil {
		t.Fatal(err)
	}
	const want = "A is not separable from B: +0.5 accuracy per question, 95% interval −1.0 to +1.0, 2 questions, p = 1.0; the " +
		"interval ends where it can: scores differ by at most 1; rough: 2 independent questions are few, and what happens on less than " +
		"150% of all may not show; a difference of this size would take about 16 questions to settle"
	if got := one.Sentence("A", "B", "accuracy"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if cell := VerdictCell(one); cell != "not separable † ‡" || len(Notes([][]string{{cell}})) != 2 {
		t.Errorf("the cell %q, notes %q", cell, Notes([][]string{{cell}}))
	}
}

// Where interval and test part, the line says which of the two procedures finds a difference.
func TestLinesNameWhatDoesNotAgree(t *testing.T) {
	for _, tc := range []struct {
		name     string
		interval Interval
		bca      Interval
		p        float64
		cell     string
	}{
		{"both find one", Interval{0.1, 0.3}, Interval{0.1, 0.3}, 0.01, "better"},
		{"none does", Interval{-0.1, 0.3}, Interval{-0.1, 0.3}, 0.2, "not separable"},
		{"the interval alone", Interval{0.1, 0.3}, Interval{0.1, 0.3}, 0.2, "not separable (permutations)"},
		{"interval and test without the bootstrap", Interval{0.1, 0.3}, Interval{-0.1, 0.3}, 0.01, "not separable (bootstrap)"},
		{"the test alone", Interval{-0.1, 0.3}, Interval{0.1, 0.3}, 0.01, "not separable (interval)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Paired{Mean: 0.2, N: 500, Changed: 100, Interval: tc.interval, BCa: tc.bca, PHolm: tc.p, Level: 0.95}
			p.Verdict = VerdictOf(p)
			if got := VerdictCell(p); got != tc.cell {
				t.Errorf("got %q, want %q", got, tc.cell)
			}
		})
	}
}
