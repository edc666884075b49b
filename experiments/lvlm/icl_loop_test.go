package lvlm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// loop is exp=icl_shapes in seconds: nothing is learned, everything is done.
func loop(dir string, more ...string) []string {
	return append([]string{"exp=icl_shapes", "hydra.run.dir=" + dir, "threads=1", "data.icl_shapes.episodes=64", "data.icl_shapes.records=40",
		"data.icl_shapes.held_out=24", "beams.queries=20", "beams.candidates=8", "beams.width=2", "sft.epochs=1", "rce.epochs=1",
		"grpo.epochs=1", "icl.selectors=['placebo:rce+grpo']", "icl.seeds=2", "icl.shots=[1,2]", "icl.baselines=[image,random]",
		"vl.scratch.hidden_size=16", "vl.scratch.intermediate_size=16", "vl.scratch.num_hidden_layers=1",
		"vl.scratch.num_attention_heads=2", "vl.scratch.num_key_value_heads=2", "vl.scratch.vision.hidden_size=16",
		"vl.scratch.vision.intermediate_size=16", "vl.scratch.vision.num_heads=2", "report.plots=false"}, more...)
}

// TestICLLoop runs the loop, kills it among the searches and in the training of a selector, and resumes it: it comes to what an
// undisturbed one does, and a run that shares its stages does none of them again. TestICLLoopKills kills the training of the model too.
func TestICLLoop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k, whole, took := wholeThen(t, dir, func(dir string) []string { return loop(dir) })
	table := read(t, filepath.Join(whole, "comparison.csv"))
	if strings.Count(table, "\n") != 7 || !strings.Contains(table, "placebo:rce+grpo,2,2,") {
		t.Fatalf("comparison:\n%s\nwant a row for each of 3 methods and 2 numbers of examples", table)
	}
	if report := read(t, filepath.Join(whole, "report.md")); !strings.Contains(report, "on 24 held-out questions") {
		t.Errorf("beams.queries bounds the training questions alone, and the report says:\n%s", report)
	}
	for _, name := range []string{"report.md", "comparison.tex", "comparison.md", "selections.jsonl", "annotations.json", "budgets.csv"} {
		read(t, filepath.Join(whole, name))
	}
	sweepSharesStages(t, dir, read(t, filepath.Join(whole, "comparison.md")))
	killed := filepath.Join(dir, "killed")
	trained, err := filepath.Glob(filepath.Join(whole, "stages", "model-*"))
	if err != nil || len(trained) != 1 {
		t.Fatal(trained, err)
	}
	if err := os.CopyFS(filepath.Join(killed, "stages", filepath.Base(trained[0])), os.DirFS(trained[0])); err != nil {
		t.Fatal(err)
	}
	if missed := k.once(killed, []string{"beams", "placebo_rce_grpo_0"}, took, 0.5); len(missed) > 1 {
		t.Errorf("no kill came while a stage was at work: %v", missed)
	}
	k.same(whole, killed, rounding)
	if log := read(t, filepath.Join(killed, "run.log")); strings.Contains(log, "model: done in") {
		t.Errorf("the model was trained again:\n%s", log)
	}
	for _, name := range []string{whole, killed} {
		if r := run(t, "verify", name); r.Code != 0 || !strings.Contains(r.Stdout, "6 evaluations") {
			t.Errorf("verify %s: exit code %d:\n%s%s", name, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// runLoop runs a command that starts tens of processes.
func runLoop(t *testing.T, args ...string) result {
	p := start(t, args...)
	p.Limit = 10 * time.Minute
	return p.Wait()
}

// sweepSharesStages runs a sweep over the seeds of a run in dir/whole that is done: no stage is run again, and its report has the
// accuracies of that run.
func sweepSharesStages(t *testing.T, dir, comparison string) {
	t.Helper()
	swept := filepath.Join(dir, "swept")
	args := loop("", "seed=0,1", "icl.seeds=1", "icl.stages="+filepath.Join(dir, "whole", "stages"), "hydra.sweep.dir="+swept)
	args[1] = "-m" // instead of the run's folder
	if r := runLoop(t, args...); r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	for _, job := range []string{"0", "1"} {
		log, err := os.ReadFile(filepath.Join(swept, job, "run.log"))
		if err != nil || strings.Contains(string(log), ": done in") || strings.Count(string(log), ": done before") < 11 {
			t.Errorf("%v: stages that are done were run again:\n%s", err, log)
		}
	}
	report, err := os.ReadFile(filepath.Join(swept, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := func(text string) map[string]string { // method and examples → accuracy
		out := map[string]string{}
		for line := range strings.Lines(text) {
			if cells := strings.Split(line, " | "); len(cells) == 8 || len(cells) == 9 { // one may say what was copied
				out[strings.TrimPrefix(cells[0], "| ")+" "+cells[1]] = cells[3]
			}
		}
		return out
	}
	want, got := rows(comparison), rows(string(report))
	if len(want) != 7 {
		t.Fatalf("comparison: %q", want)
	}
	for name, accuracy := range want {
		if got[name] != accuracy {
			t.Errorf("%s examples: accuracy %s, in the sweep's report %q", name, accuracy, got[name])
		}
	}
}
