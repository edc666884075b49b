package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// TestExportKeepsWhatIsNoExport: --force replaces an export, not a run, its files or a folder of other things.
func TestExportKeepsWhatIsNoExport(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	golden.Write(t, dir, map[string]string{"run/.hydra/config.yaml": "", "run/summary.json": "{}",
		"run/checkpoints/rce_epoch1.safetensors": "x", "run/checkpoints/rce_epoch1.pt": "x", "model/config.json": "{}",
		"model/model.safetensors": "", "work/model/config.json": "{}", "work/notes.txt": ""})
	for out, want := range map[string]string{"run": "this folder holds .hydra", ".": "this folder holds model",
		"work": "this folder holds model", "run/summary.json": "a run writes this file",
		"run/checkpoints/rce_epoch1.safetensors": "a run writes this file", "run/checkpoints/rce_epoch1.pt": "", "model": "", "new": ""} {
		if err := mayReplace(out); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--out %s: %v, want %q", out, err, want)
		}
	}
	source := filepath.Join("run", "checkpoints", "rce_epoch1.safetensors")
	err := exportCheckpoint([]string{source}, exportOptions{format: "hf", out: "run", force: true})
	if _, gone := os.Stat(source); err == nil || !strings.Contains(err.Error(), "this folder holds") || gone != nil {
		t.Errorf("an export onto its run: %v, %v", err, gone)
	}
}
