package pruner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/sweep/sweeper"
)

func halving(min, factor int) sweeper.PrunerOptions {
	o := sweeper.DefaultPrunerOptions()
	o.Name, o.MinEpochs, o.ReductionFactor = "asha", min, factor
	return o
}

func medianOf(startup, min int) sweeper.PrunerOptions {
	o := sweeper.DefaultPrunerOptions()
	o.Name, o.StartupTrials, o.MinEpochs = "median", startup, min
	return o
}

func open(t *testing.T, opt sweeper.PrunerOptions, sweep string, num, total int) *Pruner {
	t.Helper()
	p, err := newPruner(withToy(), opt, sweep, num, total)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDecides(t *testing.T) {
	for _, tc := range []struct {
		opt  sweeper.PrunerOptions
		want []int // of the first 100 epochs
	}{
		{halving(1, 3), []int{1, 3, 9, 27, 81}},
		{halving(2, 4), []int{2, 8, 32}},
		{halving(5, 2), []int{5, 10, 20, 40, 80}},
		{medianOf(5, 3), nil},
		{medianOf(5, 98), []int{98, 99, 100}},
	} {
		var got []int
		for e := 1; e <= 100; e++ {
			if open(t, tc.opt, "", 0, 1000).rule.decides(e) {
				got = append(got, e)
			}
		}
		if tc.want == nil {
			if len(got) != 98 || got[0] != 3 {
				t.Errorf("%+v decides after %v, want from 3 on", tc.opt, got)
			}
		} else if !slices.Equal(got, tc.want) {
			t.Errorf("%+v decides after %v, want %v", tc.opt, got, tc.want)
		}
	}
	if newASHA(halving(1, 1000)).decides(math.MaxInt) {
		t.Error("a rung at the largest number")
	}
}

// sweepOf runs jobs with the given losses, one after another, and returns the epochs that each made.
func sweepOf(t *testing.T, opt sweeper.PrunerOptions, minimize bool, runs [][]float64) (epochs []int, dir string) {
	t.Helper()
	dir = t.TempDir()
	for num, losses := range runs {
		p := open(t, opt, dir, num, len(losses))
		made := 0
		for i, v := range losses {
			reason, err := p.Report(i+1, "val_loss", v, minimize)
			if err != nil {
				t.Fatal(err)
			}
			made = i + 1
			if reason != "" {
				break
			}
		}
		epochs = append(epochs, made)
	}
	return epochs, dir
}

func flat(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

func TestASHA(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name     string
		opt      sweeper.PrunerOptions
		maximize bool
		runs     [][]float64
		want     []int
	}{
		{"the first η-1 go on, then the best third", halving(1, 3), false,
			[][]float64{flat(5, 9), flat(4, 9), flat(6, 9), flat(3, 9), flat(3.5, 9), flat(3.2, 9)},
			[]int{9, 9, 1, 9, 1, 3}}, // 3.2 is among the best 2 of 6, but at epoch 3, where four have been, not the best
		{"larger is better", halving(1, 2), true, [][]float64{flat(1, 4), flat(2, 4), flat(0, 4), flat(3, 4)}, []int{4, 4, 1, 4}},
		{"equals go on", halving(1, 2), false, [][]float64{flat(1, 4), flat(1, 4), flat(1, 4)}, []int{4, 4, 4}},
		{"the best so far counts, not the last", halving(1, 2), false, [][]float64{{3, 3, 3, 3}, {2, 9, 9, 9}, {4, 1, 1, 1}}, []int{4, 4, 1}},
		{"NaN loses to every number", halving(1, 2), false, [][]float64{flat(3, 4), flat(nan, 4), flat(math.Inf(1), 4)}, []int{4, 1, 1}},
		{"no rung at the last epoch", halving(1, 2), false, [][]float64{{1}, {2}, {3}}, []int{1, 1, 1}},
		{"no rung before min_epochs", halving(4, 2), false, [][]float64{flat(1, 8), flat(2, 8), flat(3, 8)}, []int{8, 4, 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _ := sweepOf(t, tc.opt, !tc.maximize, tc.runs)
			if !slices.Equal(got, tc.want) {
				t.Errorf("epochs %v, want %v", got, tc.want)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		name string
		opt  sweeper.PrunerOptions
		runs [][]float64
		want []int
	}{
		{"worse than the median of the others ends", medianOf(3, 1), [][]float64{flat(1, 5), flat(2, 5), flat(3, 5), flat(4, 5),
			flat(1.5, 5), flat(2.5, 5)}, []int{5, 5, 5, 1, 5, 1}},
		{"not before min_epochs", medianOf(2, 3), [][]float64{flat(1, 5), flat(2, 5), flat(3, 5)}, []int{5, 5, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := sweepOf(t, tc.opt, true, tc.runs); !slices.Equal(got, tc.want) {
				t.Errorf("epochs %v, want %v", got, tc.want)
			}
		})
	}
}

// ASHA keeps what successive halving promises: about a share 1/η of the runs passes each rung, the final best is
// among the best there, and the sweep costs a fraction of the epochs.
func TestASHASaves(t *testing.T) {
	const n, epochs = 81, 27
	random := rand.New(rand.NewPCG(1, 2))
	runs := make([][]float64, n)
	best, at := math.Inf(1), 0
	for i := range runs {
		limit := random.Float64()
		for e := range epochs { // curves that fall to their limit, with a little noise
			runs[i] = append(runs[i], limit+math.Exp(-float64(e)/5)+0.01*random.NormFloat64())
		}
		if v := slices.Min(runs[i]); v < best {
			best, at = v, i
		}
	}
	made, dir := sweepOf(t, halving(1, 3), true, runs)
	total, passed := 0, 0
	for _, e := range made {
		total += e
		if e > 1 {
			passed++
		}
	}
	t.Logf("%d of %d epochs, %d of %d runs passed the first rung", total, n*epochs, passed, n)
	if total > n*epochs/4 || passed < n/3-5 || passed > n/3+12 {
		t.Errorf("%d of %d epochs, %d of %d runs passed the first rung: want at most a quarter, and about a third", total, n*epochs, passed, n)
	}
	siblings, err := Siblings(dir)
	if err != nil || len(siblings) != n {
		t.Fatalf("%d rung files, %v", len(siblings), err)
	}
	found := math.Inf(1)
	for _, s := range siblings {
		found = min(found, float64(s.Best[len(s.Best)-1]))
	}
	if found > best+0.05 {
		t.Errorf("the best that is left is %.4f, the best of all (run %d) %.4f", found, at, best)
	}
}

// A run that is killed and resumed leaves the file that an undisturbed one leaves, byte for byte, wherever it is
// killed; meanwhile its siblings see no fewer epochs than before.
func TestResumedRunsTellTheSame(t *testing.T) {
	losses := []float64{5, 4, math.NaN(), 3, 3.5}
	_, alone := sweepOf(t, halving(1, 3), true, [][]float64{losses})
	want, err := os.ReadFile(rungFile(alone, 0))
	if err != nil {
		t.Fatal(err)
	}
	for killed := 1; killed <= len(losses); killed++ {
		for state := 0; state <= killed; state++ { // what the resume starts from
			dir := t.TempDir()
			report := func(p *Pruner, from, to int) {
				for e := from; e <= to; e++ {
					if _, err := p.Report(e, "val_loss", losses[e-1], true); err != nil {
						t.Fatal(err)
					}
				}
			}
			report(open(t, halving(1, 3), dir, 0, len(losses)), 1, killed)
			p := open(t, halving(1, 3), dir, 0, len(losses))
			for e := 1; e <= state; e++ {
				if err := p.Seed(e, "val_loss", losses[e-1], true); err != nil {
					t.Fatal(err)
				}
			}
			for e := state + 1; e <= len(losses); e++ {
				report(p, e, e)
				if told, err := readProgress(rungFile(dir, 0)); err != nil || len(told.Best) < killed {
					t.Fatalf("killed after %d, resumed from %d: at epoch %d the file holds %d epochs (%v)", killed, state, e, len(told.Best), err)
				}
			}
			got, err := os.ReadFile(rungFile(dir, 0))
			if err != nil || string(got) != string(want) {
				t.Errorf("killed after %d, resumed from %d: %v\n got %s\nwant %s", killed, state, err, got, want)
			}
		}
	}
}

// Only siblings that tell of the same metric are compared; temporary files are not read; a damaged file is named.
func TestSiblings(t *testing.T) {
	dir := t.TempDir()
	if all, err := Siblings(dir); err != nil || all != nil {
		t.Errorf("a sweep without rung files: %v, %v", all, err)
	}
	for num, metric := range []string{"val_kl", "val_kl", "val_loss"} {
		if _, err := open(t, halving(1, 2), dir, num, 9).Report(1, metric, 0.1, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(rungs(dir), ".7.json.tmp123"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if reason, err := open(t, halving(1, 2), dir, 3, 9).Report(1, "val_loss", 0.05, true); err != nil || reason != "" {
		t.Errorf("the best of two runs ended: %q, %v", reason, err)
	}
	reason, err := open(t, halving(1, 2), dir, 4, 9).Report(1, "val_loss", 5, true)
	want := "asha: val_loss after the first epoch is 5, better in 2 of the 2 other runs: only the best 1 of 3 go on"
	if err != nil || reason != want {
		t.Errorf("%v\n got %s\nwant %s", err, reason, want)
	}
	path := rungFile(dir, 9)
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, halving(1, 2), dir, 5, 9).Report(1, "val_loss", 5, true); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged rung file: %v", err)
	}
}

func TestEpochsComeInOrder(t *testing.T) {
	p := open(t, halving(1, 2), t.TempDir(), 0, 9)
	if _, err := p.Report(2, "val_loss", 1, true); err == nil || !strings.Contains(err.Error(), "epoch 2 after 0") {
		t.Errorf("got %v", err)
	}
}

func ExamplePruner() {
	dir, err := os.MkdirTemp("", "sweep")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	opt := sweeper.DefaultPrunerOptions()
	opt.Name, opt.ReductionFactor = "asha", 2
	for job, loss := range []float64{0.8, 0.5, 0.9} {
		p, err := New(opt, dir, job, 4)
		if err != nil {
			fmt.Println(err)
			return
		}
		reason, err := p.Report(1, "val_loss", loss, true)
		fmt.Println(job, reason, err)
	}
	// Output:
	// 0  <nil>
	// 1  <nil>
	// 2 asha: val_loss after the first epoch is 0.9, better in 2 of the 2 other runs: only the best 1 of 3 go on <nil>
}
