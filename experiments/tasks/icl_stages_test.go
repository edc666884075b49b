//go:build !core

package tasks

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fulcrum/beamdata/icl"
	"fulcrum/experiments/job"
	"fulcrum/reports/record"
)

// A stage that writes is progress of the run that has started it, and one that stands still is not.
func TestStagesAreFollowed(t *testing.T) {
	dir, stage := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := &job.Job{Config: &job.Config{}}
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		j.Config.Logging = record.LoggingOptions{LogEverySteps: 1, StallMinutes: 10}
		if j.Log, err = record.OpenLog(dir, record.LogOptions{LoggingOptions: j.Config.Logging, Stderr: null, Now: time.Now}); err != nil {
			t.Fatal(err)
		}
		defer j.Log.Close()
		said := func() int {
			text, _ := os.ReadFile(filepath.Join(dir, "run.log"))
			return strings.Count(string(text), "no progress")
		}
		end := (&stages{job: j}).follow("train", stage)
		rows := filepath.Join(stage, "metrics.jsonl")
		for minute := range 60 {
			if err := os.WriteFile(rows, make([]byte, minute), 0o644); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if n := said(); n > 0 {
			t.Errorf("%d warnings while the stage wrote", n)
		}
		time.Sleep(11 * time.Minute)
		if n := said(); n != 1 {
			t.Errorf("%d warnings when the stage stood still, want one", n)
		}
		end()
		j.Log.Unwatch()
	})
}

// Another picture under the same name, of the same size and time, or another picture for a record of the same name, is other input;
// a folder that is moved is not.
func TestPicturesCountByContent(t *testing.T) {
	dir := t.TempDir()
	when := time.Unix(1e9, 0)
	put := func(path, text string) string {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644),
			os.Chtimes(path, when, when)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	of := func(paths ...string) string {
		var records []icl.Record
		for _, p := range paths {
			records = append(records, icl.Record{Image: p})
		}
		sum, err := pictures(t.Context(), icl.TableOf(records...))
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	a, b := put("a/1.png", "red"), put("b/1.png", "sky")
	before := of(a, b, a, "")
	if moved := of(put("c/1.png", "red"), put("d/1.png", "sky"), put("c/1.png", "red"), ""); moved != before {
		t.Error("the same pictures elsewhere are others")
	}
	if before == of(a, b, b, "") || before == of(b, a, b, "") || before == of(a, b, "", a) {
		t.Error("other pictures of the records, the same digest")
	}
	if put("b/1.png", "sea"); of(a, b, a, "") == before {
		t.Error("a replaced picture, the same digest")
	}
	if gone := of(a, filepath.Join(dir, "x.png"), a, ""); gone == before {
		t.Error("a picture that is not there, the same digest")
	}
}

// A stage's folder has another name where the program makes something else of equal input, but not when the folder of stages is moved.
func TestStageFolders(t *testing.T) {
	name := func(root string, edition int, from ...string) string {
		s := &stages{root: root}
		dir, err := s.folder("beams", edition, []string{"task=beams", "data.beams='" + root + "/pools/records.json'"}, from)
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(dir)
	}
	first := name("/a", 1, "records")
	if first != name("/b", 1, "records") || first == name("/a", 2, "records") || first == name("/a", 1, "others") {
		t.Error("names of stages do not say what they depend on")
	}
	for _, task := range []string{"world", "embed", "beams", "infer", "train", "predict"} {
		if edition(task) < 1 {
			t.Errorf("%s has no edition", task)
		}
	}
}

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

// An override stands in a stage's name by what it says, however it is written: a sweep writes the values of its jobs anew.
func TestCanonicalOverrides(t *testing.T) {
	for _, same := range [][]string{{"report.plots=false", "report.plots=False"}, {"beams.shots=2", "beams.shots= 2"},
		{"schedule=[rce,grpo]", "schedule=[ rce, 'grpo' ]"}, {"data.embeddings=/a b.pt", "data.embeddings='/a b.pt'"}} {
		if canonical(same[0]) != canonical(same[1]) {
			t.Errorf("%q and %q stand in names as %q and %q", same[0], same[1], canonical(same[0]), canonical(same[1]))
		}
	}
	for _, other := range [][]string{{"data.root='1'", "data.root=1"}, {"grpo.lr=1", "grpo.lr=1.0"}, {"~grpo", "~rce"}} {
		if canonical(other[0]) == canonical(other[1]) {
			t.Errorf("%q and %q stand in names as one, %q", other[0], other[1], canonical(other[0]))
		}
	}
}
