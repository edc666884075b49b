package sweep_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inSweep are the overrides of job num of a sweep in dir whose pruner is asha with η = 2.
func inSweep(dir string, num int, more ...string) []string {
	return append([]string{"hydra.sweep.dir=" + dir, fmt.Sprintf("hydra.job.num=%d", num), "hydra.run.dir=" + filepath.Join(dir, itoa(num)),
		"hydra.sweeper.pruner.name=asha", "hydra.sweeper.pruner.reduction_factor=2", "rce.epochs=3", "grpo.epochs=2", "logging.progress=false",
		"checkpoint.best.metric=val_loss"},
		more...)
}

func rung(t *testing.T, dir string, num int) string {
	t.Helper()
	return read(t, filepath.Join(dir, ".sweep", "rungs", itoa(num)+".json"))
}

// A job that does badly beside its siblings ends itself, as a finished run ends: exit code 0, a summary, a report
// that says why, and a state that a resume will not go on from.
func TestPrunedRun(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	dir := folder(t)
	mustRun(t, small(data, inSweep(dir, 0, "rce.lr=1e-2")...)...)
	r := mustRun(t, small(data, inSweep(dir, 1, "rce.lr=1e-6", "checks.severity.too_few_steps=note")...)...)
	job := filepath.Join(dir, "1")
	if !strings.Contains(r.Stdout, "report: "+job) {
		t.Errorf("stdout: %s", r.Stdout)
	}
	var s struct {
		State string
		Best  struct {
			Metric string
			Phase  string
			Epoch  int
		}
		Phases []struct {
			Name, Stopped string
			Epochs        int
		}
		Warnings []string
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(job, "summary.json"))), &s); err != nil {
		t.Fatal(err)
	}
	const why = "asha: val_loss after the first epoch is "
	if s.State != "pruned" || len(s.Phases) != 1 || s.Phases[0].Epochs != 1 || !strings.HasPrefix(s.Phases[0].Stopped, why) ||
		s.Best.Metric != "val_loss" || len(s.Warnings) > 0 {
		t.Errorf("summary: %+v", s)
	}
	for _, want := range []string{`"event":"pruned","severity":"note","message":"` + why} {
		if rows := read(t, filepath.Join(job, "metrics.jsonl")); strings.Count(rows, want) != 1 {
			t.Errorf("metrics.jsonl has no one %s", want)
		}
	}
	if report := read(t, filepath.Join(job, "report.md")); !strings.Contains(report,
		"**This run was ended early by its sweep's pruner.** asha: ") {
		t.Error("report.md does not say why the run ended")
	}
	if !exists(filepath.Join(job, "checkpoints", "rce_epoch1.state")) || !exists(filepath.Join(job, "checkpoints", "best.safetensors")) {
		t.Error("the state or the best checkpoint is missing")
	}
	if got := rung(t, dir, 1); strings.Count(got, ",") != 3 || !strings.Contains(got, `"metric":"val_loss","minimize":true,"best":[`) {
		t.Errorf("rung file: %s", got)
	}
	if got := rung(t, dir, 0); strings.Count(got[strings.Index(got, "["):], ",") != 4 {
		t.Errorf("the rung file of the finished job has not all 5 epochs: %s", got)
	}
	before := read(t, filepath.Join(job, "metrics.jsonl"))
	if r := mustRun(t, "resume", job); !strings.Contains(r.Stdout, "ended early by its sweep's pruner") ||
		read(t, filepath.Join(job, "metrics.jsonl")) != before {
		t.Errorf("resume of a pruned run: %s", r.Stdout)
	}

	// Killed between the verdict and the summary: the verdict is part of the state and stands, whatever its
	// siblings have told since.
	for _, gone := range []string{filepath.Join(job, "summary.json"), filepath.Join(job, "report.md"),
		filepath.Join(dir, ".sweep/rungs/0.json")} {
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "resume", job)
	var again struct{ State string }
	if err := json.Unmarshal([]byte(read(t, filepath.Join(job, "summary.json"))), &again); err != nil || again.State != "pruned" {
		t.Errorf("after a resume the run is %s (%v), want pruned", again.State, err)
	}

	// The same configuration outside the sweep is trained to its end.
	elsewhere := folder(t)
	mustRun(t, "--rerun", job, "hydra.run.dir="+elsewhere)
	if got := read(t, filepath.Join(elsewhere, "summary.json")); !strings.Contains(got, `"state": "done"`) {
		t.Error("a repetition of a pruned run was pruned too")
	}
}

// A job that is killed and resumed tells its siblings what an undisturbed one tells them.
func TestPrunedResume(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	dir, alone := folder(t), folder(t)
	args := func(dir string) []string {
		return small(data, inSweep(dir, 4, "rce.epochs=4", "seed=3", "hydra.job.env_copy=[ONLY_AT_THE_START]")...)
	}
	p := startWith(t, "", []string{"ONLY_AT_THE_START=1"}, args(dir)...)
	p.Until(func() bool { return exists(filepath.Join(dir, "4/checkpoints/rce_epoch2.state")) })
	resumes := p.KillRun(filepath.Join(dir, "4"))
	mustRun(t, "resume", filepath.Join(dir, "4"))
	if r := startWith(t, "", []string{"ONLY_AT_THE_START=1"}, args(alone)...).Wait(); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if got, want := rung(t, dir, 4), rung(t, alone, 4); got != want {
		t.Errorf("rung file\n got %s\nwant %s", got, want)
	}
	outcomeOf(t, filepath.Join(alone, "4")).Same(t, outcomeOf(t, filepath.Join(dir, "4")), resumes)
}

// An objective that no epoch has ends the job at its first one, and names what there is.
func TestPrunerWithoutItsMetric(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	dir := folder(t)
	refused(t, run(t, small(data, inSweep(dir, 0, "hydra.sweeper.objective=val_accuracy")...)...), 2, "hydra.sweeper.objective",
		`unknown metric "val_accuracy"`, "val_advantage, ")
	refused(t, run(t, small(data, inSweep(dir, 1, "hydra.sweeper.objective=seconds")...)...), 2,
		"asha judges runs by a metric of their epochs")
}

// A sweep with a pruner: the controller counts a pruned job as one that has ended, and it keeps its value.
func TestPrunedSweep(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	dir := folder(t)
	args := inSweep(dir, 0, "rce.lr=1e-2,1e-8")
	args = slices.DeleteFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "hydra.job.num") || strings.HasPrefix(a, "hydra.run.dir")
	})
	mustRun(t, small(data, append(args, "-m")...)...)
	all := jobs(t, dir)
	if len(all) != 2 || all[0].State != "done" || all[1].State != "pruned" || len(all[1].Objectives) != 1 {
		t.Errorf("jobs: %+v", all)
	}
	if s := mustRun(t, "status", dir).Stdout; !strings.Contains(s, "pruned") {
		t.Errorf("status:\n%s", s)
	}
}
