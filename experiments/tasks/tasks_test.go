package tasks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/experiments/job"
)

// The table of limits in docs/README.md names every task.
func TestDocsNameEveryTask(t *testing.T) {
	page, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(page), "\n| Tasks | ")
	row, _, _ = strings.Cut(row, "\n")
	for _, name := range Tasks().Names() {
		if !strings.Contains(row, name) {
			t.Errorf("%s is not in %q", name, row)
		}
	}
}

// TestAFailedWriteKeepsTheLook: an evaluation that could not write its scores has looked at the references all the same, so that its
// folder, which says so, stays.
func TestAFailedWriteKeepsTheLook(t *testing.T) {
	j := &job.Job{Dir: t.TempDir()}
	if err := writeRouge(j, rougeEvaluation{}, nil, filepath.Join(j.Dir, "none", "rouge.jsonl")); err == nil || !j.Begun {
		t.Errorf("%v, begun: %v", err, j.Begun)
	}
}
