package tasks

import (
	"io"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/job"
	"fulcrum/internal/tensorfile"
	"fulcrum/reports/record"
)

// With lvlm.model=null the server says which model it has: a resume that finds another one would learn from both.
func TestAnotherServedModelAtAResume(t *testing.T) {
	log, err := record.OpenLog(t.TempDir(), record.LogOptions{Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	j := &job.Job{Config: &job.Config{}, Log: log, Served: []tensorfile.Input{{Path: "lvlm.model", Digest: "qwen"}}}
	saved, err := look(j, nil)
	if err != nil || !slices.Contains(saved, "lvlm.model qwen") {
		t.Fatalf("a state would name %q, %v", saved, err)
	}
	if err := sameInputs(j, saved); err != nil {
		t.Error(err)
	}
	j.Served[0].Digest = "llava"
	if err := sameInputs(j, saved); err == nil || !strings.Contains(err.Error(), "lvlm.model: its content is not what the saved state") {
		t.Errorf("another model: %v, want a refusal", err)
	}
	if err := sameInputs(j, nil); err != nil {
		t.Errorf("a state of an older program: %v", err)
	}
}
