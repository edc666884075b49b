package sweep_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/reports/record"
)

// smallStudy is a study of summaries in seconds.
func smallStudy(more ...string) []string {
	return append([]string{"-m", "exp=summarize_study", "seed=0", "hydra.launcher.n_jobs=1", "data.summaries.train=24",
		"data.summaries.val=8", "data.summaries.test=8",
		"data.eval.train_queries=8", "seq2seq.scratch.d_model=32", "seq2seq.scratch.d_ff=48", "seq2seq.scratch.num_layers=1",
		"seq2seq.scratch.num_decoder_layers=1",
		"seq2seq.generation.max_new_tokens=8", "report.plots=false", "sft.epochs=1", "checks.off=[preflight,doctor]"}, more...)
}

// lossOf is a policy's loss on a split, of the last row that evaluates it.
func lossOf(t *testing.T, dir, split, policy string) float64 {
	t.Helper()
	run, err := record.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Backward(run.EvalRows) {
		if x, ok := e.Number("loss"); ok && e.Text("split") == split && e.Text("policy") == policy {
			return x
		}
	}
	t.Fatalf("%s: no loss of %s on %s", dir, policy, split)
	return 0
}

// An arm that starts as seq2seq.path has the model that the arm before trained, adapters merged, and trains what it is
// told to, not what was trained there.
func TestSummaryStudyStartsFromMergedModels(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, smallStudy("hydra.sweep.dir="+dir)...)
	doneOnce(t, dir, 5)
	for _, of := range []struct {
		name, parent, child string
		last                string
		tolerance           float64
	}{
		{"adapters on the base", "0", "1", "sft", 0},
		{"more steps with the adapters", "1", "2", "sft", 0},
		{"GRPO with the adapters", "1", "3", "sft", 0},
		{"GRPO on all parameters, adapters merged", "1", "4", "sft", 1e-4},
	} {
		for _, split := range []string{"val", "test", "train"} {
			ended, starts := lossOf(t, filepath.Join(dir, of.parent), split, of.last), lossOf(t, filepath.Join(dir, of.child),
				split, "init")
			if math.Abs(ended-starts) > of.tolerance {
				t.Errorf("%s: starts with a loss of %v on %s, the arm before ended with %v", of.name, starts, split, ended)
			}
		}
	}
	for child, want := range map[string]bool{"1": true, "3": true, "4": false} { // adapters alone, or all weights
		file, err := tensorfile.ReadSafetensors(filepath.Join(dir, child, "checkpoints", "last.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tensor := range file.Tensors {
			names = append(names, tensor.Name)
		}
		file.Close()
		if adapters := slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "lora_A.weight") }); adapters != want {
			t.Errorf("job %s trains adapters: %v, want %v (%d tensors)", child, adapters, want, len(names))
		}
	}
	// What a run with a merged base trained is opened without that base being named: to answer, and as a folder.
	out := filepath.Join(t.TempDir(), "out.jsonl")
	in := filepath.Join(t.TempDir(), "in.jsonl")
	writeLines(t, in, "", map[string]any{"id": 0, "source": "weather in town : rain"})
	mustRun(t, "task=generate", "policy=seq2seq", "init.checkpoint="+filepath.Join(dir, "3"), "generate.in="+in,
		"generate.out="+out, "generate.max_new_tokens=4", "hydra.run.dir="+folder(t))
	model := filepath.Join(t.TempDir(), "MODEL")
	mustRun(t, "checkpoint", "export", filepath.Join(dir, "3"), "--format", "hf", "--out", model)
	mustRun(t, "task=generate", "policy=seq2seq", "seq2seq.path="+model, "generate.in="+in, "generate.out="+out,
		"generate.max_new_tokens=4", "hydra.run.dir="+folder(t))

	needsAnnexes(t)
	report := read(t, filepath.Join(dir, "report.md"))
	for _, want := range []string{"Every set of questions", "reward on train", "What does GRPO add to SFT?",
		"SFT, then GRPO (all parameters)"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	mustRun(t, "verify", dir)
}

// A run whose seq2seq.path names what is no model of its kind says so.
func TestModelOfAnotherPolicy(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, tiny("schedule=[rce]", "rce.epochs=1", "report.plots=false", "hydra.run.dir="+dir)...)
	r := run(t, "exp=summaries_tiny", "seq2seq.path="+dir, "hydra.run.dir="+folder(t))
	if last := lastLine(r.Stderr); r.Code == 0 || !strings.Contains(last, "seq2seq.path="+dir) ||
		!strings.Contains(last, "a checkpoint of policy pointer") {
		t.Errorf("exit %d: %s", r.Code, last)
	}
}
