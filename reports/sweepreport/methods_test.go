package sweepreport

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/sweeps"
)

// The seeds of task=icl are joined in one table, and jobs that have no objective are not ranked.
func TestMethodsOverSeeds(t *testing.T) {
	dir := t.TempDir()
	var jobs []sweeps.Job
	for seed := range 3 {
		run := filepath.Join(dir, fmt.Sprint(seed))
		reportstest.Must(t, os.MkdirAll(filepath.Join(run, ".hydra"), 0o755))
		reportstest.Must(t, os.WriteFile(filepath.Join(run, ".hydra/config.yaml"), fmt.Appendf(nil, "seed: %d\n", seed), 0o644))
		var ids []int64
		of := map[string][]float64{}
		for q := range 40 {
			ids = append(ids, int64(q))
			right := func(yes bool) float64 {
				if yes {
					return 1
				}
				return 0
			}
			of["image"] = append(of["image"], right(q%4 == 0))
			of["sft"] = append(of["sft"], right((q+seed)%10 != 0))
		}
		for _, name := range []string{"image", "sft"} {
			reportstest.Must(t, record.AppendEvals(run, record.Evaluation{Split: "held_out", Policy: name, Metric: "accuracy", Shots: 2,
				QueryIDs: ids, Scores: of[name]}))
		}
		reportstest.Must(t, results.WriteSummary(run, record.Summary{State: record.StateDone, Task: "icl"}))
		jobs = append(jobs, sweeps.Job{Number: seed, Dir: run, Overrides: []string{fmt.Sprintf("seed=%d", seed)}, State: record.StateDone,
			Params: map[string]string{"seed": fmt.Sprint(seed)}})
	}
	reportstest.Must(t, WriteReport(dir, jobs, sweeps.Options{}))
	report := reportstest.ReadReport(t, dir)
	for _, want := range []string{"**Better than `image`**: `sft` +65 (", "| image | 2 | 3 | 25 |", "| sft | 2 | 3 | 90.0 |",
		"| job | `seed` | state | epochs |"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	for _, wrong := range []string{"objective", "No job has a result", "## Settings", "## Verdicts"} {
		if strings.Contains(report, wrong) {
			t.Errorf("the report has %q:\n%s", wrong, report)
		}
	}
	if table := sweeps.Table(jobs, sweeps.Options{}, 0); strings.Contains(table, "objective") {
		t.Errorf("the table has a column for the objective that there is none of:\n%s", table)
	}
}
