package experiments_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// loop is exp=icl_shapes in seconds: nothing is learned, everything is done.
func loop(dir string, more ...string) []string {
	return append([]string{"exp=icl_shapes", "hydra.run.dir=" + dir, "threads=1", "data.icl_shapes.episodes=64", "data.icl_shapes.records=40",
		"data.icl_shapes.held_out=24", "beams.queries=20", "beams.candidates=8", "beams.width=2", "sft.epochs=1", "rce.epochs=1",
		"grpo.epochs=1", "icl.selectors=[sft,'placebo:rce+grpo']", "icl.seeds=2", "icl.shots=[1,2]", "icl.baselines=[image,random]",
		"report.plots=false"}, more...)
}

// TestICLLoop runs the loop, kills it at several moments and resumes it: the comparison is that of an undisturbed one, and a run
// that shares its stages does none of them again.
func TestICLLoop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	accuracies := func(run string) string { return read(filepath.Join(run, "comparison.csv")) }
	whole := runLoop(t, loop(filepath.Join(dir, "whole"))...)
	if whole.code != 0 {
		t.Fatalf("exit %d: %s", whole.code, whole.stderr)
	}
	if table := accuracies("whole"); strings.Count(table, "\n") != 9 || !strings.Contains(table, "placebo:rce+grpo,2,2,") {
		t.Fatalf("comparison:\n%s\nwant a row for each of 4 methods and 2 numbers of examples", table)
	}
	if report := read("whole/report.md"); !strings.Contains(report, "on 24 held-out questions") {
		t.Errorf("beams.queries bounds the training questions alone, and the report says:\n%s", report)
	}
	for _, name := range []string{"report.md", "comparison.tex", "comparison.md", "selections.jsonl", "annotations.json", "budgets.csv"} {
		read(filepath.Join("whole", name))
	}
	sweepSharesStages(t, dir, accuracies("whole"))
	killed := filepath.Join(dir, "killed")
	begun, kills := false, 20
	if testing.Short() {
		kills = 2
	}
	for range kills {
		args := loop(killed)
		if begun {
			args = []string{"resume", killed}
		}
		p := start(t, args...)
		time.Sleep(time.Duration(500+rand.IntN(2500)) * time.Millisecond)
		p.signal(syscall.SIGKILL)
		p.wait()
		_, err := os.Stat(filepath.Join(killed, ".hydra", "config.yaml"))
		begun = err == nil
	}
	args := loop(killed)
	if begun {
		args = []string{"resume", killed}
	}
	if r := runLoop(t, args...); r.code != 0 {
		t.Fatalf("resume: exit %d: %s", r.code, r.stderr)
	}
	if accuracies("killed") != accuracies("whole") {
		t.Errorf("killed and resumed:\n%s\nundisturbed:\n%s", accuracies("killed"), accuracies("whole"))
	}
	for _, name := range []string{"whole", "killed"} {
		if r := run(t, "verify", filepath.Join(dir, name)); r.code != 0 || !strings.Contains(r.stdout, "8 evaluations") {
			t.Errorf("verify %s: exit %d:\n%s%s", name, r.code, r.stdout, r.stderr)
		}
	}
}

// runLoop runs a command that starts tens of processes.
func runLoop(t *testing.T, args ...string) result {
	p := start(t, args...)
	p.limit = 10 * time.Minute
	return p.wait()
}

// sweepSharesStages runs a sweep over the seeds of a run in dir/whole that is done: no stage is run again, and its report has the
// accuracies of that run.
func sweepSharesStages(t *testing.T, dir, comparison string) {
	t.Helper()
	swept := filepath.Join(dir, "swept")
	args := loop("", "seed=0,1", "icl.seeds=1", "icl.stages="+filepath.Join(dir, "whole", "stages"), "hydra.sweep.dir="+swept)
	args[1] = "-m" // instead of the run's folder
	if r := runLoop(t, args...); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	for _, job := range []string{"0", "1"} {
		log, err := os.ReadFile(filepath.Join(swept, job, "run.log"))
		if err != nil || strings.Contains(string(log), ": done in") || strings.Count(string(log), ": done before") < 12 {
			t.Errorf("%v: stages that are done were run again:\n%s", err, log)
		}
	}
	report, err := os.ReadFile(filepath.Join(swept, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // method and examples → accuracy
	for line := range strings.Lines(string(report)) {
		if cells := strings.Split(line, " | "); len(cells) == 8 {
			rows[strings.TrimPrefix(cells[0], "| ")+" "+cells[1]] = cells[3]
		}
	}
	for line := range strings.Lines(comparison) {
		if cells := strings.Split(line, ","); rows[cells[0]+" "+cells[1]] != cells[3] {
			t.Errorf("%s with %s examples: accuracy %s, in the sweep's report %q", cells[0], cells[1], cells[3], rows[cells[0]+" "+cells[1]])
		}
	}
}
