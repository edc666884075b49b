package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/experiments/bench"
)

// TestBenchRunsEveryWorkload makes two steps of each workload on small data: `make bench` in little. The
// short form keeps to one phase: each row is a process that loads libtorch.
func TestBenchRunsEveryWorkload(t *testing.T) {
	args := []string{"workloads", "--steps", "2", "--queries", "70", "--repeats", "1", "--format", "json", "--dir",
		filepath.Join(t.TempDir(), "data")}
	names := map[string]bool{}
	for _, w := range bench.Workloads() {
		args = append(args, w.Name)
		names[w.Name] = true
	}
	phases := 3
	if testing.Short() {
		args, phases = append(args, "--phases", "grpo-exact"), 1
	}
	r := run(t, append(args, "selector.hidden_dim=16")...)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	var report struct{ Rows []bench.Line }
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v:\n%s", err, r.stdout)
	}
	if len(report.Rows) != phases*len(names) {
		t.Errorf("%d rows, want %d for each of %d workloads", len(report.Rows), phases, len(names))
	}
	for _, l := range report.Rows {
		finite := !math.IsNaN(l.FirstLoss) && l.FirstLoss != l.LastLoss
		if !names[l.Workload] || l.PerSecond <= 0 || l.PerCPU <= 0 || l.StepMS <= 0 || l.PeakMB < 50 || l.Steps < 1 ||
			l.Pool < 64 || l.Steps > 1 && !finite {
			t.Errorf("odd row %+v", l)
		}
	}
}

func TestBenchRefusesWhatItCannotDo(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"unknown flag", "unknown flag", []string{"--frobnicate"}},
		{"unknown workload names the nearest", "legacy_k64_b32", []string{"legacy_k64"}},
		{"unknown key", "grpo.kl.bta", []string{"legacy_k64_b32", "--queries", "70", "grpo.kl.bta=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(t, append([]string{"workloads"}, tc.args...)...)
			if r.code == 0 || !strings.Contains(r.stderr, tc.want) {
				t.Errorf("exit code %d, %q: want a refusal with %q", r.code, r.stderr, tc.want)
			}
		})
	}
}
