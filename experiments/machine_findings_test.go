package experiments_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// What the preflight finds of the machine's memory stands in the summary and the report, which verify, and in no row.
func TestMemoryFindingIsKept(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, tiny("schedule=[rce]", "rce.epochs=1", "preflight.enabled=true", "preflight.memory.limit=1e-9", "report.plots=false",
		"hydra.run.dir="+dir)...)
	for file, want := range map[string]bool{"summary.json": true, "report.md": true, "metrics.jsonl": false} {
		if got := strings.Contains(read(t, filepath.Join(dir, file)), "largest shapes takes"); got != want {
			t.Errorf("%s says what the step takes: %v, want %v", file, got, want)
		}
	}
	verifies(t, dir)
}
