package experiments_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// littered leaves a temporary file and folder, as a killed process does, in every folder of a run.
func littered(t *testing.T, dir string) (folders int) {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range all {
		write(t, filepath.Join(at, ".x.jpg.tmp12345"), "half")
		if err := os.MkdirAll(filepath.Join(at, ".y.state.tmp67/z"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return len(all)
}

// A resume removes what kills have left, in whichever folder of the run, and touches nothing that is not ours.
func TestLitter(t *testing.T) {
	t.Parallel()
	dir := copyOf(t, true)
	for _, sub := range []string{"pictures", ".board", "stages/1/checkpoints", "model", "plots"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if n := littered(t, dir); n < 10 {
		t.Fatalf("%d folders, want at least 10: the test looks at nothing", n)
	}
	mine := filepath.Join(dir, "mine/.draft.tmp1")
	if err := os.MkdirAll(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, mine, "a user's")
	mustRun(t, "resume", dir)
	if left := leftovers(t, dir); len(left) != 1 || left[0] != mine {
		t.Errorf("temporary files: %v, want %s alone", left, mine)
	}
}

// A kill while the configuration is written into a folder that holds something else leaves nothing behind the next run there.
func TestLitterOfTheConfiguration(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	litter, note := filepath.Join(dir, ".hydra/.config.yaml.tmp123"), filepath.Join(dir, ".note.tmp7")
	if err := os.MkdirAll(filepath.Dir(litter), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, litter, "task:")
	write(t, filepath.Join(dir, "notes.txt"), "a user's")
	write(t, note, "a user's")
	mustRun(t, tiny("hydra.run.dir="+dir, "rce.epochs=1", "grpo.epochs=0", "report.plots=false")...)
	if exists(litter) || !exists(note) {
		t.Errorf("left: %v, want %s alone", leftovers(t, dir), note)
	}
}

// A task that writes its file anywhere removes what a killed one has left of it there.
func TestLitterOfAnOutput(t *testing.T) {
	t.Parallel()
	out := filepath.Join(filepath.Dir(folder(t)), "out.jsonl")
	litter := filepath.Join(filepath.Dir(out), ".out.jsonl.tmp123")
	write(t, litter, "{")
	mustRun(t, tiny("task=predict", "init.checkpoint="+undrawn(t), "predict.out="+out, "hydra.run.dir="+folder(t))...)
	if exists(litter) {
		t.Errorf("%s is still there", litter)
	}
	if strings.TrimSpace(read(t, out)) == "" {
		t.Error("nothing was predicted")
	}
}
