package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A reference to a checkpoint or state that its run has removed says in one line what there is.
func TestRemovedCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"init_epoch0", "grpo_epoch7", "grpo_epoch8"} {
		if err := os.WriteFile(filepath.Join(dir, name+".safetensors"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"grpo_epoch2.safetensors", "grpo_epoch2.state"} {
		path := filepath.Join(dir, name)
		_, err := ResolveCheckpoint("init.checkpoint", path)
		want := "init.checkpoint=" + path + ": no such file: of grpo its run has kept grpo_epoch7.safetensors, grpo_epoch8.safetensors " +
			"(checkpoint.keep, checkpoint.keep_states): name one, or the run folder"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, err := ResolveCheckpoint("init.checkpoint", filepath.Join(dir, "bets.safetensors"))
	if err == nil || strings.Contains(err.Error(), "kept") {
		t.Errorf("a name of no epoch: %v", err)
	}
}
