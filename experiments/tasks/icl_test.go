//go:build !core

package tasks

import (
	"os"
	"path/filepath"
	"testing"

	"fulcrum/beamdata/icl"
	"fulcrum/experiments/job"
)

func TestAnnotationsNumberPicturesAsTheRecords(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "records.jsonl")
	lines := `{"id": 1, "image": "0.jpg", "question": "q", "answers": ["a"], "image_id": 0, "split": "val"}
{"id": 2, "image": "7.jpg", "question": "q", "answers": ["a"], "image_id": 7, "split": "val"}`
	if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	set, err := icl.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{set: set, job: &job.Job{Dir: dir}}
	for _, r := range set.Records.All() {
		l.held = append(l.held, r)
	}
	if err := l.writeAnnotations(); err != nil {
		t.Fatal(err)
	}
	got, _, err := readAnnotations(filepath.Join(dir, "annotations.json"), "image")
	if err != nil || len(got) != 2 || got[0].ImageID != 0 || got[1].ImageID != 7 {
		t.Errorf("annotations %+v, %v, want images 0 and 7", got, err)
	}
}
