package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

func TestLooksSpendAlpha(t *testing.T) {
	sum := 0.0
	for n := 1; n <= 1_000_000; n++ {
		sum += LookAt(n).Level
	}
	if sum > Alpha || sum < Alpha*0.99999 {
		t.Errorf("a million looks spend %v, want nearly all of %v", sum, Alpha)
	}
	x, zero := make([]float64, 100), make([]float64, 100)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = 0.25 + r.NormFloat64()
	}
	wide := 0.0
	for _, tc := range []struct {
		look int
		want Verdict
	}{{0, Better}, {1, Better}, {9, NotSeparable}} {
		of := Correction{}
		if tc.look > 0 {
			of.Look = LookAt(tc.look)
		}
		p, err := PairedDifference(x, zero, nil, of, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		Settle([]*Paired{&p})
		if p.Verdict != tc.want {
			t.Errorf("look %d: %s (p %.4g), want %s", tc.look, p.Verdict, p.PHolm, tc.want)
		}
		if w := p.Interval.High - p.Interval.Low; w <= wide {
			t.Errorf("look %d: the interval is %.4f wide, want more than %.4f before", tc.look, w, wide)
		} else {
			wide = w
		}
	}
}

// adversary trains runs that learn nothing until one of them is called better or worse than similarity on the same questions: with other
// seeds, by a metric that the last run was not judged by, and ended at the epoch that looks best. spends says whether the looks have their
// part of alpha or all of it. It returns at which look it won; 0: at none.
func adversary(t *testing.T, seed uint64, runs, questions int, spends bool) int {
	r := rand.New(rand.NewPCG(seed, 0x6c6f6f6b))
	const epochs, metrics = 3, 2
	luck := make([]float64, questions) // what all runs of a recipe share
	for i := range luck {
		luck[i] = r.NormFloat64()
	}
	look := 0
	zero, reward, accuracy := make([]float64, questions), make([]float64, questions), make([]float64, questions)
	for range runs {
		for epoch := range epochs { // each is a run that stops there, and so a look of its own
			for i := range reward {
				if epoch == 0 {
					reward[i] = 0.5*luck[i] + r.NormFloat64()
				} else {
					reward[i] = 0.9*reward[i] + 0.44*r.NormFloat64()
				}
				accuracy[i] = 0
				if x := reward[i] + r.NormFloat64(); math.Abs(x) > 1 { // an answer becomes right, or wrong
					accuracy[i] = math.Copysign(1, x)
				}
			}
			for m := range metrics {
				look++
				of := Correction{}
				if spends {
					of.Look = LookAt(look)
				}
				p, err := DifferenceOf([][]float64{reward, accuracy}[m], zero, nil, DefaultOptions())
				if err != nil {
					t.Fatal(err)
				}
				if p.Correction = of; Names(&p) {
					return look
				}
			}
		}
	}
	return 0
}

// Whoever has 500 null runs and compares each with similarity and with every other finds a winner in at most 5 % of attempts. At the level
// of the later look undivided, the planted fault, 12.8 % have one.
func TestAdversaryOfPairs(t *testing.T) {
	const runs, attempts = 500, 4000
	var baseline, pair [runs + 1]float64 // where z must be for p to be below the level
	for n := 1; n <= runs; n++ {
		baseline[n] = distuv.UnitNormal.Quantile(1 - LookAt(n).With(Look{}).Level/2)
		pair[n] = distuv.UnitNormal.Quantile(1 - LookAt(n).With(LookAt(1)).Level/2)
	}
	r, won := rand.New(rand.NewPCG(3, 4)), 0
	for range attempts {
		least, most := math.Inf(1), math.Inf(-1)
		for n := 1; n <= runs; n++ {
			z := r.NormFloat64()
			if math.Abs(z) > baseline[n] || max(z-least, most-z)/math.Sqrt2 > pair[n] && n > 1 {
				won++
				break
			}
			least, most = min(least, z), max(most, z)
		}
	}
	if share := float64(won) / attempts; share > 0.05 {
		t.Errorf("%.1f %% of attempts win, want at most 5 %%", 100*share)
	} else {
		t.Logf("500 null runs, each against similarity and all others: %.1f %% of %d attempts win", 100*share, attempts)
	}
}

// Whoever judges each of 500 null runs by 200 of 1,000 questions, drawn anew, has sets that share a fifth in pairs. Where one question in
// common makes them one set (package looks) 5 % of attempts win; where half must be common, the planted fault, each set begins at look 1.
func TestAdversaryOfSubsets(t *testing.T) {
	const runs, questions, scored = 500, 1000, 200
	attempts := 1000
	if testing.Short() {
		attempts = 100
	}
	r, won := rand.New(rand.NewPCG(5, 6)), map[bool]int{}
	var beyond [runs + 1]float64
	for n := 1; n <= runs; n++ {
		beyond[n] = distuv.UnitNormal.Quantile(1 - LookAt(n).Level/2)
	}
	for range attempts {
		luck, done := make([]float64, questions), map[bool]bool{} // what all runs share
		for i := range luck {
			luck[i] = r.NormFloat64()
		}
		for n := 1; n <= runs && !done[true]; n++ {
			sum := r.NormFloat64() * math.Sqrt(scored) // of what is this run's own
			for i := range scored {
				j := i + r.IntN(questions-i)
				luck[i], luck[j] = luck[j], luck[i]
				sum += luck[i]
			}
			z := math.Abs(sum) / math.Sqrt(2*scored)
			for shared, at := range map[bool]float64{true: beyond[n], false: beyond[1]} {
				if z > at && !done[shared] {
					done[shared] = true
					won[shared]++
				}
			}
		}
	}
	share := func(shared bool) float64 { return float64(won[shared]) / float64(attempts) }
	t.Logf("one question in common: %.1f %% of %d attempts win; half: %.1f %%", 100*share(true), attempts, 100*share(false))
	if most := 0.05 + 3*math.Sqrt(0.05*0.95/float64(attempts)); share(true) > most || share(false) < 0.9 {
		t.Error("want at most 5 %, and nearly all")
	}
}

// An adversary who may have 500 runs without any effect, six looks at each, finds a winner in at most 5 % of attempts. Without the
// spending, the planted fault, nearly every attempt has one.
//
//	go test ./reports/stats -run Adversary -v      prints the lines of docs/log/statistics.md
func TestAdversaryOfLooks(t *testing.T) {
	attempts, most := 1000, 0.05
	if testing.Short() {
		attempts = 40
		most += 3 * math.Sqrt(0.05*0.95/40) // its own chance
	}
	const runs, questions = 500, 200
	won := map[bool]int{}
	for _, spends := range []bool{true, false} {
		sum := 0
		for k := range attempts {
			if at := adversary(t, uint64(k), runs, questions, spends); at > 0 {
				won[spends]++
				sum += at
			}
		}
		t.Logf("500 null runs, spending %v: %.1f %% of %d attempts win, after %.1f looks in the mean", spends,
			100*float64(won[spends])/float64(attempts), attempts, float64(sum)/float64(max(won[spends], 1)))
	}
	if share := float64(won[true]) / float64(attempts); share > most {
		t.Errorf("%.1f %% of attempts win, want at most 5 %%", 100*share)
	}
	if share := float64(won[false]) / float64(attempts); share < 0.9 {
		t.Errorf("without spending only %.1f %% of attempts win: the test would not notice", 100*share)
	}
}
