package workload

import (
	"os"
	"path/filepath"
	"testing"

	"fulcrum/internal/testkit/golden"
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
