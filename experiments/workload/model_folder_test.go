package workload

import (
	"os"
	"path/filepath"
	"testing"
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
