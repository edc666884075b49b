package sweep_test

import (
	"syscall"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments"
	"fulcrum/experiments/sweep"
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

// processorTime is what this process has used: unlike the clock's it does not depend on what else the machine does.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A sweep of 10,000 jobs is composed and checked in seconds, before the first starts.
func TestSweepOfTenThousand(t *testing.T) {
	begin := processorTime(t)
	jobs := plannedSweep(t, "range(0,5000)")
	took := processorTime(t) - begin
	t.Logf("%d jobs in %v", len(jobs), took)
	hashes := map[string]bool{}
	for _, j := range jobs {
		hashes[j] = true
	}
	if len(jobs) != 10000 || len(hashes) != 10000 {
		t.Errorf("%d jobs with %d configurations, want 10000", len(jobs), len(hashes))
	}
	if limit := 12 * time.Second; took > limit { // three times what it takes on a quiet machine
		t.Errorf("took %v of processor time, want less than %v", took, limit)
	}
}
