package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/testkit/golden"
)

// plannedSweep composes and checks the jobs of a sweep over seeds, as a user's command would, and returns their
// fingerprints.
func plannedSweep(tb testing.TB, seeds string) []string {
	tb.Helper()
	schema, err := experiments.App{}.Schema()
	if err != nil {
		tb.Fatal(err)
	}
	hashes, err := sweep.Fingerprints(experiments.App{}, configs.Request{
		Library: configs.Library(), Schema: schema, Multirun: true, AppName: "run", Now: time.Now(),
		Overrides: []string{"exp=okvqa_v3", "grpo.lr=1e-5,5e-6", "seed=" + seeds, "hydra.sweep.dir=" + tb.TempDir()},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return hashes
}

func BenchmarkSweep20(b *testing.B) {
	for b.Loop() {
		plannedSweep(b, "range(0,10)")
	}
}

func BenchmarkSweep10000(b *testing.B) {
	for b.Loop() {
		plannedSweep(b, "range(0,5000)")
	}
}

// A sweep of 10,000 jobs (2,000 in the short form) is composed and checked in seconds, before the first starts.
func TestSweepOfTenThousand(t *testing.T) {
	n := 10000
	if testing.Short() {
		n = 2000 // the same bound, for slow machines
	}
	begin := golden.ProcessorTime(t)
	jobs := plannedSweep(t, fmt.Sprintf("range(0,%d)", n/2))
	took := golden.ProcessorTime(t) - begin
	t.Logf("%d jobs in %v", len(jobs), took)
	hashes := map[string]bool{}
	for _, j := range jobs {
		hashes[j] = true
	}
	if len(jobs) != n || len(hashes) != n {
		t.Errorf("%d jobs with %d configurations, want %d", len(jobs), len(hashes), n)
	}
	if limit := 40 * time.Second; took > limit { // ten times what it takes on a quiet machine
		t.Errorf("took %v of processor time, want less than %v", took, limit)
	}
}
