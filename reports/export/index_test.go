package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/curves"
	"fulcrum/reports/record"
)

// manyRuns writes n runs that have ended below a root, as long ago as the index asks for, and returns their folders.
func manyRuns(t *testing.T, n int) (root string, folders []Folder) {
	t.Helper()
	root = t.TempDir()
	for i := range n {
		dir := filepath.Join(root, fmt.Sprint("day", i%5), fmt.Sprint(i))
		reportstest.Must(t, os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755))
		config := fmt.Sprintf("task: train\nseed: %d\ngrpo:\n  lr: 0.00%d\nschedule:\n- rce\n", i, i%3+1)
		reportstest.Must(t, os.WriteFile(filepath.Join(dir, ".hydra", "config.yaml"), []byte(config), 0o644))
		writeSummary(t, dir, float64(i))
		folders = append(folders, Folder{dir, root})
	}
	return root, folders
}

func writeSummary(t *testing.T, dir string, value float64) {
	t.Helper()
	s := record.Summary{State: record.StateDone, Title: "t", Task: "train", Overrides: []string{"a b=c", fmt.Sprint("x=", value)},
		Seed: int64(value), Device: "cpu", Start: "2026-01-02T03:04:05Z", WallSeconds: 1.5 + value, Warnings: []string{"w"},
		Data: record.DataSummary{Name: "shapes"},
		Phases: []record.PhaseSummary{{Name: "rce", Epochs: 1, Steps: 10,
			Final: map[string]record.Number{"val_reward": 0.1, "loss": record.Number(value)}}},
		Best: &record.BestSummary{Metric: "val_reward", Value: record.Number(value / 3), Phase: "rce", Epoch: 1, Checkpoint: "checkpoints/x"},
		Evaluations: []record.StageResult{{Split: "dev", Metric: "reward", Policy: record.PolicyRandom, Mean: 0.1},
			{Split: "dev", Metric: "reward", Policy: record.PolicyBest, Phase: "rce", Mean: value / 7, SE: 0.01}}}
	data, err := json.Marshal(s)
	reportstest.Must(t, err)
	reportstest.Must(t, os.WriteFile(filepath.Join(dir, record.SummaryFile), data, 0o644))
}

func unlocked(string) bool { return false }

// rows is the table of runs, and what a reader without an index makes of them.
func rows(t *testing.T, folders []Folder) (got, want string, anew int) {
	t.Helper()
	write := func(reader *Reader, folders []Folder) string {
		table, err := reader.Runs(folders)
		if err != nil {
			return err.Error()
		}
		var out bytes.Buffer
		reportstest.Must(t, table.CSV(&out))
		return out.String()
	}
	reader := NewReader(unlocked)
	got = write(reader, folders)
	for _, x := range reader.indexes {
		anew += len(x.readAt)
	}
	reader.Save()
	var alone []Folder
	for _, f := range folders {
		alone = append(alone, Folder{Dir: f.Dir})
	}
	return got, write(NewReader(unlocked), alone), anew
}

// ago waits until what was just written may stand in an index.
func ago() { time.Sleep(settled + 100*time.Millisecond) }

// What changes between two calls stands in the second, whatever the index says; what does not is not read again.
func TestIndexIsNeverStale(t *testing.T) {
	root, folders := manyRuns(t, saveFrom+10)
	path := filepath.Join(root, curves.IndexFolder, indexFile)
	check := func(what string, wantAnew int) {
		t.Helper()
		got, want, anew := rows(t, folders)
		if got != want || anew != wantAnew {
			t.Errorf("%s: %d summaries were read anew, want %d; the table is that of the folders: %v", what, anew, wantAnew, got == want)
		}
	}
	check("at first", len(folders))
	for name, one := range load(root) { // none, unless this machine is slow
		if since := time.Since(time.Unix(0, one.Identity.Changed)); since < settled {
			t.Errorf("%s is in the index, written %v before it was read", name, since)
		}
	}
	reportstest.Must(t, os.RemoveAll(filepath.Dir(path)))
	ago()
	check("without an index", len(folders))
	check("with the index", 0)
	summary := func(i int) string { return filepath.Join(folders[i].Dir, record.SummaryFile) }
	info, err := os.Stat(summary(0))
	reportstest.Must(t, err)
	data, err := os.ReadFile(summary(0))
	reportstest.Must(t, err)
	data = bytes.Replace(data, []byte(`"cpu"`), []byte(`"gpu"`), 1)
	reportstest.Must(t, os.WriteFile(summary(0), data, 0o644)) // as long, and with the time of before
	reportstest.Must(t, os.Chtimes(summary(0), info.ModTime(), info.ModTime()))
	check("a summary of another content, with size and time of before", 1)
	reportstest.Must(t, os.Remove(summary(1)))
	check("a run that goes on", 1)
	reportstest.Must(t, os.Rename(folders[2].Dir, folders[2].Dir+"x"))
	reportstest.Must(t, os.Rename(folders[3].Dir, folders[2].Dir))
	reportstest.Must(t, os.Rename(folders[2].Dir+"x", folders[3].Dir))
	check("two runs that changed places", 3)
	reportstest.Must(t, os.WriteFile(filepath.Join(folders[4].Dir, ".hydra", "config.yaml"), []byte("seed: 99\nnew: 1\n"), 0o644))
	check("another configuration", 3)
	locked := NewReader(func(dir string) bool { return dir == folders[5].Dir })
	if r, err := locked.Read(folders[5]); err != nil || r.Values["state"] != record.StateRunning {
		t.Errorf("a run at work: %v (%v)", r.Values["state"], err)
	}
	good, err := os.ReadFile(path)
	reportstest.Must(t, err)
	first, body, _ := bytes.Cut(good, []byte("\n"))
	bit := bytes.Clone(good)
	bit[len(bit)-9] ^= 1
	for what, text := range map[string][]byte{
		"empty": {}, "cut": good[:len(good)/2], "cut in its head": good[:10], "a head alone": first, "no head": body, "a bit": bit,
		"another version": bytes.Replace(good, []byte(`"version":2,`), []byte(`"version":3,`), 1),
		"more":            append(bytes.Clone(good), 'x'), "a letter": bytes.Replace(good, []byte("train"), []byte("trail"), 1),
	} {
		reportstest.Must(t, os.WriteFile(path, text, 0o644))
		if known := load(root); len(known) > 0 {
			t.Errorf("%s: %d runs of a damaged index", what, len(known))
		}
		if got, want, _ := rows(t, folders[5:6]); got != want {
			t.Errorf("%s: another table", what)
		}
	}
	reportstest.Must(t, os.RemoveAll(filepath.Dir(path)))
	ago()
	check("after its folder went", len(folders)-1)
	check("and again", 0)
}

// An index is written nowhere else than in its folder, and a root that cannot be written has none.
func TestIndexFollowsNoLink(t *testing.T) {
	root, folders := manyRuns(t, saveFrom)
	elsewhere := t.TempDir()
	ago()
	target := filepath.Join(elsewhere, "precious")
	reportstest.Must(t, os.WriteFile(target, []byte("precious"), 0o644))
	for name, prepare := range map[string]func() error{
		"its folder is a link": func() error { return os.Symlink(elsewhere, filepath.Join(root, curves.IndexFolder)) },
		"it is a link": func() error {
			reportstest.Must(t, os.Mkdir(filepath.Join(root, curves.IndexFolder), 0o755))
			return os.Symlink(target, filepath.Join(root, curves.IndexFolder, indexFile))
		},
		"its folder is a file": func() error { return os.WriteFile(filepath.Join(root, curves.IndexFolder), nil, 0o644) },
	} {
		reportstest.Must(t, os.RemoveAll(filepath.Join(root, curves.IndexFolder)))
		reportstest.Must(t, prepare())
		got, want, _ := rows(t, folders)
		names, err := os.ReadDir(elsewhere)
		text, _ := os.ReadFile(target)
		if got != want || err != nil || len(names) != 1 || string(text) != "precious" {
			t.Errorf("%s: %d files elsewhere, %q (%v); the table is the same: %v", name, len(names), text, err, got == want)
		}
	}
}

// Whoever changes what a row takes of a summary counts indexVersion on and writes the file anew (-update).
func TestIndexVersionIsCountedOn(t *testing.T) {
	_, folders := manyRuns(t, 8)
	reader := NewReader(unlocked)
	e, err := reader.ended(folders[7])
	reportstest.Must(t, err)
	text, err := json.MarshalIndent(e, "", " ")
	reportstest.Must(t, err)
	r, err := reader.Read(folders[7])
	reportstest.Must(t, err)
	kept := fmt.Sprintf("version %d\n%s\n", indexVersion, text)
	for _, name := range slices.Sorted(maps.Keys(r.Values)) {
		if name != "run" {
			kept += fmt.Sprintf("%s %T %[2]v\n", name, r.Values[name])
		}
	}
	golden.File(t, "testdata/index.txt", []byte(kept))
}
