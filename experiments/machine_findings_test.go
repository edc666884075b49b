package experiments_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What is found of the machine, here of a stretch of steps that waits for its rewards, stands in the summary and the report, which verify,
// and in no row.
func TestMachineFindingIsKept(t *testing.T) {
	t.Parallel()
	var asked, first, last atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Items []struct{ Completion string } }
		json.NewDecoder(r.Body).Decode(&body)
		switch n := asked.Add(1); {
		case n == 4:
			first.Store(time.Now().UnixNano())
		case n > 12 && n <= 21: // six steps or more of thirty, each twice as long as the eight requests before
			time.Sleep(2 * time.Duration(last.Load()-first.Load()))
		case n == 12:
			last.Store(time.Now().UnixNano())
		}
		scores := []float64{}
		for _, it := range body.Items {
			scores = append(scores, float64(len(it.Completion)%7)/7)
		}
		json.NewEncoder(w).Encode(scores)
	}))
	defer server.Close()
	dir := folder(t)
	mustRun(t, tinySummaries("t5", "schedule=[grpo]", "grpo.epochs=10", "grpo.num_iterations=1", "rewards.length.weight=0",
		"rewards.external.weight=1", "rewards.external.url="+server.URL, "checks.off=[preflight]", "hydra.run.dir="+dir)...)
	for file, want := range map[string]bool{"summary.json": true, "report.md": true, "metrics.jsonl": false} {
		if got := strings.Contains(read(t, filepath.Join(dir, file)), "something else used the machine"); got != want {
			t.Errorf("%s says where the steps slowed down: %v, want %v (%d requests)", file, got, want, asked.Load())
		}
	}
	verifies(t, dir)
}

// A run whose checkpoints cannot fit on the disk is refused before its first step; one that patience may end is warned.
func TestDiskForecast(t *testing.T) {
	t.Parallel()
	huge := tiny("dry_run=true", "checks.off=[]", "rce.epochs=20000000", "hydra.run.dir="+folder(t))
	refused(t, run(t, huge...), 1, "stopped by disk", "do not fit; set checkpoint.keep")
	for _, fits := range []string{"checkpoint.keep=3", "checkpoint.patience_epochs=2", "checks.severity.disk=warning"} {
		r := mustRun(t, append(huge, fits)...)
		if warned := strings.Contains(r.Stderr, "do not fit"); warned == (fits == "checkpoint.keep=3") ||
			!strings.Contains(r.Stderr, "disk: checkpoints and states take up to ") {
			t.Errorf("%s:\n%s", fits, r.Stderr)
		}
	}
}
