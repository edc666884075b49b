package board

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/curves"
)

// edit replaces what a pattern finds in a file, once.
func edit(t *testing.T, path, pattern, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindAllIndex(data, -1)
	if len(found) != 1 {
		t.Fatalf("%s: %d times %s: %s", path, len(found), pattern, data)
	}
	out := string(data[:found[0][0]]) + text + string(data[found[0][1]:])
	if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
}

// An index of another version is not read: its runs were judged otherwise. What is 0 comes back as 0.
func TestIndexVersion(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "run")
	finishedRun(t, dir, 0.1)
	b := boardOf(root)
	b.Scan(true)
	want := *b.entryAt(t, dir).Best
	b.saveIndex()
	index := filepath.Join(root, curves.IndexFolder, runsIndex)
	edit(t, index, `"best":[^,]*,`, `"best":0,`)
	scoreOf := func() float64 {
		t.Helper()
		b := boardOf(root)
		b.Scan(true)
		e := b.entryAt(t, dir)
		if e.Best == nil || e.Seed == nil || *e.Seed != 0 {
			t.Fatalf("score %v, seed %v, want both", e.Best, e.Seed)
		}
		return *e.Best
	}
	if got := scoreOf(); got != 0 {
		t.Errorf("the index says 0, the board %v: it is not read", got)
	}
	edit(t, index, `^{"version":\d+`, fmt.Sprintf(`{"version":%d`, indexVersion-1))
	if got := scoreOf(); got != want {
		t.Errorf("an index of another version: score %v, want %v", got, want)
	}
}

// Whoever changes what is kept of a run, or how it is judged, counts indexVersion on and writes the file anew (-update).
func TestIndexVersionIsCountedOn(t *testing.T) {
	root := t.TempDir()
	finishedRun(t, filepath.Join(root, "run"), 0.1)
	recordedRun(t, filepath.Join(root, "recorded"))
	b := boardOf(root)
	b.Scan(true)
	kept := fmt.Sprintf("version %d\n", indexVersion)
	for _, name := range []string{"run", "recorded"} {
		e := b.entryAt(t, filepath.Join(root, name))
		e.ID, e.Version = "", 0
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		kept += string(data) + "\n"
	}
	golden.File(t, "testdata/index.txt", []byte(kept))
}

// Runs that a first look has left for the next are in the index as soon as the last of them is read, however few they are.
func TestIndexHoldsTheLast(t *testing.T) {
	root := t.TempDir()
	finishedRun(t, filepath.Join(root, "run"), 0.1)
	b := boardOf(root)
	b.reading, b.scanned = 1, time.Now().Add(-time.Hour) // left by the look before
	b.Scan(true)
	again := boardOf(root)
	again.loadIndex()
	if len(again.runs) != 1 {
		t.Errorf("the index has %d runs, want 1", len(again.runs))
	}
	b = boardOf(filepath.Join(root, "run"))
	b.reading, b.scanned = 1, time.Now().Add(-time.Hour)
	b.Scan(true)
	if _, err := os.Stat(filepath.Join(root, "run", curves.IndexFolder)); err == nil {
		t.Error("an index of itself in a run folder")
	}
}

// The board's indexes are written nowhere else than in their folder.
func TestIndexesFollowNoLink(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	run := filepath.Join(root, "run")
	finishedRun(t, run, 0.1)
	for _, dir := range []string{root, run} {
		if err := os.RemoveAll(filepath.Join(dir, curves.IndexFolder)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, filepath.Join(dir, curves.IndexFolder)); err != nil {
			t.Fatal(err)
		}
	}
	b := boardOf(root)
	b.reading, b.scanned = 1, time.Now().Add(-time.Hour)
	b.Scan(true)
	if names, err := os.ReadDir(elsewhere); len(b.runs) != 1 || len(names) > 0 || err != nil {
		t.Errorf("%d runs; %v written elsewhere (%v)", len(b.runs), names, err)
	}
}
