package tasks

import (
	"os"
	"strings"
	"testing"
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
