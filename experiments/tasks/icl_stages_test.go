package tasks

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What stands in a stage's name changes with the weights of a folder and with a file that is written anew.
func TestStateOfFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "model.safetensors")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	before, alone := state(dir), state(file)
	if len(before) != 1 || !slices.Equal(before, alone) || !slices.Equal(before, state(dir)) {
		t.Errorf("the folder's state is %q, the file's %q", before, alone)
	}
	if write("three"); slices.Equal(state(dir), before) || slices.Equal(state(file), alone) {
		t.Error("other weights, the same state")
	}
}
