package sweep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/reports/page"
	"fulcrum/reports/sweepreport"
	"fulcrum/reports/sweeps"
)

// Jobs that judge themselves by different metrics have no rank, each its value under its own name.
func TestOwnMetricsAreNotRanked(t *testing.T) {
	dir := t.TempDir()
	var jobs []ledger.Job
	for i, o := range []ledger.Objective{{Name: "val_loss", Value: 7.444, Minimize: true}, {Name: "val_reward", Value: 0.2507},
		{Name: "val_reward", Value: 0.2604}} {
		jobs = append(jobs, ledger.Job{Num: i, Overrides: []string{"exp=" + string(rune('a'+i))}, State: launcher.Done,
			Objectives: []ledger.Objective{o}})
	}
	opt, rows := ResultOf(dir, ledger.Sweep{Sweeper: "tpe"}, jobs)
	if err := sweepreport.WriteReport(dir, rows, opt); err != nil {
		t.Fatal(err)
	}
	if err := sweepreport.WriteOptimizationResults(dir, rows, opt); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(page.ReportPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(report), sweeps.Table(rows, opt, 0)} {
		for _, want := range []string{"own metrics are val", "hydra.sweeper.objective=val", "7.444", "–"} {
			if !strings.Contains(strings.ReplaceAll(text, `\`, ""), want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "best: ") || strings.Contains(text, "Best ") || strings.Contains(text, "Judged by") {
			t.Errorf("a winner in\n%s", text)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "optimization_results.yaml")); err == nil {
		t.Errorf("optimization_results.yaml: %s", text)
	}
}

// A job that was under way and whose folder is gone runs no more: only the sweep can go on with it.
func TestRunningJobWithoutFolderIsLost(t *testing.T) {
	dir := t.TempDir()
	job := ledger.Job{Num: 1, Dir: "1", State: launcher.Running, Attempts: 1}
	observe(dir, GoalsOf(ledger.Sweep{}), &job)
	if job.State != launcher.Lost || !strings.HasSuffix(strings.TrimSuffix(job.Cause, "`"), "resume "+dir) {
		t.Errorf("%s: %s", job.State, job.Cause)
	}
}
