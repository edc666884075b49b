package tasks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// A result file named as one that the run writes would take its place, or be lost to it.
func TestPrepareOutKeepsTheRunsFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".hydra", "config.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"infer.json", "selections.jsonl", "summary.json", "run.log", "report.md", ".hydra/config.yaml",
		"checkpoints/best.safetensors"} {
		err := PrepareOut("infer.out", filepath.Join(dir, name), nil, false)
		if err == nil || !strings.Contains(err.Error(), "a run writes this file of its folder itself") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "results.json"), filepath.Join(dir, "mine", "infer.json"),
		filepath.Join(t.TempDir(), "summary.json")} {
		if err := PrepareOut("infer.out", path, nil, false); err != nil {
			t.Error(err)
		}
	}
}

// TestPrepareOutKeepsModels: a file of a model's folder is no output; one beside them, or in another folder, is.
func TestPrepareOutKeepsModels(t *testing.T) {
	model, other := t.TempDir(), t.TempDir()
	for _, name := range []string{"config.json", "model-00001-of-00002.safetensors", "tokenizer.json", "chat_template.jinja", "out.jsonl",
		"embeddings.safetensors"} {
		golden.Write(t, model, map[string]string{name: "{}"})
		if name != "config.json" {
			golden.Write(t, other, map[string]string{name: "{}"})
		}
		err := PrepareOut("generate.out", filepath.Join(model, name), nil, false)
		refused := err != nil && strings.Contains(err.Error(), "belongs to the model")
		if own := !strings.Contains("out.jsonl embeddings.safetensors", name); own != refused {
			t.Errorf("%s: %v", name, err)
		}
		if err := PrepareOut("generate.out", filepath.Join(other, name), nil, false); err != nil {
			t.Error(err)
		}
	}
}

// TestPrepareOutInADryRun: a dry run finds whether a file may be written, and makes no folder for it.
func TestPrepareOutInADryRun(t *testing.T) {
	dir := t.TempDir()
	golden.Write(t, dir, map[string]string{"file": ""})
	for name, want := range map[string]string{"a/b/out.jsonl": "", "out.jsonl": "", "file/out.jsonl": "not a directory"} {
		err := PrepareOut("generate.out", filepath.Join(dir, name), nil, true)
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("a dry run leaves %v (%v)", entries, err)
	}
}
