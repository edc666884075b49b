package workload

import (
	"os"
	"path/filepath"
	"testing"

	"fulcrum/experiments/job"
	"fulcrum/internal/testkit/golden"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
)

// A run's folder may be called as its overrides are: brackets in it are no pattern.
func TestIsModelInAnyFolder(t *testing.T) {
	for _, name := range []string{"plain", "schedule=[rce,grpo]"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if isModel(dir) {
			t.Errorf("%s is empty and counts as a model", name)
		}
		if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if !isModel(dir) {
			t.Errorf("%s has weights and is no model", name)
		}
	}
}

// TestStartOfRun: paths are read as they were written, whatever YAML would make of them; null is none.
func TestStartOfRun(t *testing.T) {
	dir := t.TempDir()
	if base, checkpoint := startOfRun(dir, vl.Kind); base != "" || checkpoint != "" {
		t.Errorf("no run started from %q and %q", base, checkpoint)
	}
	golden.Write(t, dir, map[string]string{".hydra/hydra.yaml": "hydra: {runtime: {cwd: /home/me}}",
		".hydra/config.yaml": "seed: 1\nvl: {path: '0123'}\ninit: {checkpoint: '/runs/two  spaces'}\nseq2seq: {path: null}"})
	for kind, want := range map[string]string{vl.Kind: "/home/me/0123", "seq2seq": ""} {
		if base, checkpoint := startOfRun(dir, kind); base != want || checkpoint != "/runs/two  spaces" {
			t.Errorf("a run of %s started from %q and %q", kind, base, checkpoint)
		}
	}
}

// TestDropoutIsTheOptions: adapters of a folder, or of init.checkpoint, are trained with the dropout that is configured, and not with that
// which they were trained with before.
func TestDropoutIsTheOptions(t *testing.T) {
	path := "base"
	for _, checkpoint := range []string{"", "run/best.safetensors"} {
		o := tokens.Options{Path: &path, LoRA: lora.DefaultOptions()}
		o.LoRA.Dropout = 0.5
		has := o.LoRA.Config()
		has.Dropout = 0.1
		if err := settleAdapters(&job.Job{}, "seq2seq", checkpoint, o, &has); err != nil || has.Dropout != 0.5 {
			t.Errorf("checkpoint %q: dropout %v (%v), want 0.5", checkpoint, has.Dropout, err)
		}
	}
}
