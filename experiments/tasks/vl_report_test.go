package tasks_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// The report of a run that writes answers says what was asked, what was sampled and what it earned.
func TestReportOfTokenRun(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, "exp=shapes_vl", "schedule=[sft,grpo]", "sft.epochs=1", "grpo=tokens", "grpo/kl=k3", "grpo.epochs=1",
		"threads=1", "data.batch_size=32", "report.plots=false", "logging.tensorboard=false",
		"vl.scratch.hidden_size=32", "vl.scratch.num_hidden_layers=1",
		"data.shapes.train_queries=64", "data.shapes.val_queries=8", "data.shapes.dev_queries=8", "hydra.run.dir="+dir)
	report := read(t, filepath.Join(dir, "report.md"))
	for _, want := range []string{"on dev, held out (8 questions, answers of up to 4 tokens)", "\n| majority | ", "\n| reference | 1.000 ",
		"gain over majority",
		"## Sampled completions\n", "**Epoch 1, step 1, question ", " Target: `", "| completion | times | tokens | reward |",
		"\n![picture](pictures/"} {
		if !strings.Contains(report, want) {
			t.Errorf("no %q in the report:\n%s", want, report)
		}
	}
	if line, _, _ := strings.Cut(read(t, filepath.Join(dir, "completions.jsonl")), "\n"); !strings.Contains(line, `"question":"<image>`) ||
		!strings.Contains(line, `"answers":["`) {
		t.Errorf("completions.jsonl does not say what was asked: %s", line)
	}
	// Pictures stand there, and not their marks.
	for _, word := range []string{"shot", "selector", "Selections", "similarity", "candidate", "image>"} {
		if strings.Contains(report, word) {
			t.Errorf("the report says %q:\n%s", word, report)
		}
	}
}

// A term that compares annotators has nobody to compare the only one with.
func TestOneAnnotatorIsTold(t *testing.T) {
	t.Parallel()
	for answers, told := range map[string]bool{`["red"]`: true, `["red", "red"]`: false} {
		data := filepath.Join(t.TempDir(), "data.jsonl")
		write(t, data, strings.Repeat(`{"prompt": [{"role": "user", "content": "Which colour?"}], "answers": `+answers+"}\n", 4))
		got := run(t, "exp=qwen2_5_text", "vl.path=null", "data.conversations.train="+data, "data.conversations.val="+data, "threads=1",
			"rewards.accuracy.weight=0", "rewards.vqa.weight=1", "checks.off=[preflight]", "dry_run=true", "hydra.run.dir="+folder(t))
		if got.Code != 0 || strings.Contains(got.Stderr, "leaves each annotator out once") != told {
			t.Errorf("%s: exit code %d, %s", answers, got.Code, got.Stderr)
		}
	}
}
