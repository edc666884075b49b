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
		"data.icl_shapes.held_out=12", "beams.queries=20", "beams.candidates=8", "beams.width=2", "sft.epochs=1", "rce.epochs=1",
		"grpo.epochs=1", "icl.selectors=[sft,'placebo:rce+grpo']", "icl.seeds=2", "icl.shots=[1,2]", "icl.baselines=[image,random]",
		"report.plots=false"}, more...)
}

// TestICLLoop runs the loop, kills it at several moments and resumes it: the comparison is that of an undisturbed one, and a run
// that shares its stages does none of them again.
func TestICLLoop(t *testing.T) {
	dir := t.TempDir()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	accuracies := func(run string) (out string) { // without budgets, which a resumed run spends otherwise
		for line := range strings.Lines(read(filepath.Join(run, "comparison.csv"))) {
			out += strings.Join(strings.Split(line, ",")[:8], ",") + "\n"
		}
		return out
	}
	whole := run(t, loop(filepath.Join(dir, "whole"))...)
	if whole.code != 0 {
		t.Fatalf("exit %d: %s", whole.code, whole.stderr)
	}
	if table := accuracies("whole"); strings.Count(table, "\n") != 9 || !strings.Contains(table, "placebo:rce+grpo,2,2,") {
		t.Fatalf("comparison:\n%s\nwant a row for each of 4 methods and 2 numbers of examples", table)
	}
	for _, name := range []string{"report.md", "comparison.tex", "comparison.md", "selections.jsonl", "annotations.json"} {
		read(filepath.Join("whole", name))
	}
	again := run(t, loop(filepath.Join(dir, "again"), "icl.stages="+filepath.Join(dir, "whole", "stages"))...)
	if log := read("again/run.log"); again.code != 0 || strings.Contains(log, ": done in") || strings.Count(log, ": done before") < 15 {
		t.Errorf("exit %d: stages that are done were run again:\n%s", again.code, log)
	}
	if accuracies("again") != accuracies("whole") {
		t.Errorf("the same stages, another comparison:\n%s", accuracies("again"))
	}
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
	if r := run(t, args...); r.code != 0 {
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
