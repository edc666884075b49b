package sweep_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A sweep that was stopped before it had a ledger is planned again from what is there; no folder of a job is named that does not exist.
func TestSweepStoppedBeforeItsLedger(t *testing.T) {
	t.Parallel()
	args := func(dir string) []string {
		return tiny("-m", "seed=1,2", "rce.epochs=1", "grpo.epochs=0", "report.plots=false", "hydra.sweep.dir="+dir)
	}
	want := folder(t)
	mustRun(t, args(want)...)
	dir := folder(t)
	obstacle := filepath.Join(dir, ".sweep.jsonl.new/x") // the ledger cannot be made
	if err := os.MkdirAll(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	refused(t, run(t, args(dir)...), 1, ".sweep.jsonl.new")
	if err := os.RemoveAll(filepath.Dir(obstacle)); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"status", "attach", "watch"} {
		refused(t, run(t, verb, dir), 2, "stopped before any of its jobs was queued", "run resume "+dir)
	}
	refused(t, run(t, "resume", dir, "rce.epochs=2"), 2, "")
	refused(t, run(t, "resume", dir, "hydra.sweeper.nonsense=2"), 2, "hydra.sweeper.nonsense")
	mustRun(t, "resume", dir)
	doneOnce(t, dir, 2)
	for _, job := range []string{"0", "1"} {
		outcomeOf(t, filepath.Join(want, job)).Same(t, outcomeOf(t, filepath.Join(dir, job)), 0)
	}
	mustRun(t, "verify", dir)
	if exists(filepath.Join(dir, ".sweep.jsonl.plan")) {
		t.Error("the plan is left behind the ledger")
	}

	// An older program's folder has no plan.
	dir = folder(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "multirun.yaml"), "task: train\n")
	for _, verb := range []string{"status", "resume", "attach"} {
		refused(t, run(t, verb, dir), 2, "start it again")
	}
}

// Killed at any moment while it is planned, made or begun, a sweep goes on with a resume, or its folder may be taken by the same command.
func TestSweepKilledWhileItIsMade(t *testing.T) {
	if testing.Short() {
		t.Skip("forty kills")
	}
	t.Parallel()
	const kills = 40
	random := rand.New(rand.NewPCG(12, 29))
	again, resumed := 0, 0
	for range kills {
		dir := folder(t)
		args := tiny("-m", "seed=choice(1)", "schedule=[rce]", "rce.epochs=1", "report.plots=false", "hydra.sweep.dir="+dir)
		p := start(t, args...)
		p.Until(func() bool { return exists(dir) })
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		p.SignalGroup(syscall.SIGKILL)
		p.Wait()
		r := run(t, "resume", dir)
		switch {
		case r.Code == 0:
			resumed++
		case strings.Contains(r.Stderr, "neither a run folder nor a sweep folder"):
			again++
			mustRun(t, args...)
		default:
			t.Fatalf("resume: exit code %d: %s", r.Code, r.Stderr)
		}
		doneOnce(t, dir, 1)
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	t.Logf("%d of %d resumed, %d begun again", resumed, kills, again)
}
