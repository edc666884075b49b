package views

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/list"
	"fulcrum/reports/record"
	"fulcrum/reports/verify"
)

// Verify checks, with run, each job's own report, what the sweep's ledger says of each job, and the sweep's report.
func Verify(ctx context.Context, dir string, run func(dir string) (*verify.Verification, error)) (*verify.Verification, error) {
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return nil, err
	}
	v, checked := verify.New(""), 0
	for _, job := range jobs {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		at := filepath.Join(dir, job.Dir)
		if !runfolder.IsRun(at) && (job.State == launcher.Done || job.State == launcher.Pruned) {
			v.Mismatches = append(v.Mismatches, mismatch(job, "state", job.State, "no run in its folder"))
			continue
		}
		if !launcher.Ended(job.State) || !runfolder.IsRun(at) { // a job may fail before it is a run
			continue
		}
		checked++
		if err := verifyResult(v, s, job, at); err != nil {
			return nil, err
		}
		of, err := run(at)
		if err != nil {
			return nil, err
		}
		v.Add(filepath.ToSlash(job.Dir), of)
	}
	options, rows, err := sweep.ReadJobs(dir)
	if err != nil {
		return nil, err
	}
	if err := v.Sweep(dir, rows, options); err != nil {
		return nil, err
	}
	v.Checked = append(v.Checked, fmt.Sprintf("%d of %d jobs, each as a run and against %s", checked, len(jobs), ledger.FileName))
	return v, nil
}

// verifyResult compares what the ledger says of a job with what the job's own records say.
func verifyResult(v *verify.Verification, s ledger.Sweep, job ledger.Job, dir string) error {
	differ := func(what string, stated, recomputed any) {
		v.Mismatches = append(v.Mismatches, mismatch(job, what, stated, recomputed))
	}
	summary, err := record.ReadSummary(dir)
	if err != nil {
		return err
	}
	if summary == nil {
		if job.State != launcher.Failed { // it may have been killed
			differ("state", job.State, "no summary.json")
		}
		return nil
	}
	if job.State != summary.State && !(job.State == launcher.Failed && summary.State == record.StateInterrupted) {
		differ("state", job.State, summary.State)
	}
	if job.State == launcher.Failed {
		return nil
	}
	outcome, err := sweep.GoalsOf(s).Read(dir)
	if err != nil {
		return err
	}
	if got, want := len(job.Objectives), len(outcome.Names); got != want {
		differ("number of objectives", got, want)
	}
	for i, o := range job.Objectives[:min(len(job.Objectives), len(outcome.Names))] {
		if o.Name != outcome.Names[i] {
			differ("objective", o.Name, outcome.Names[i])
		} else if got := outcome.Values[i]; !same(float64(o.Value), got) {
			differ(o.Name, float64(o.Value), got)
		}
	}
	if !same(float64(job.Violation), outcome.Violation) {
		differ("violation of the constraints", float64(job.Violation), outcome.Violation)
	}
	for name, x := range job.Metrics {
		if got, ok := outcome.Metrics[name]; !ok || !same(float64(x), float64(got)) {
			differ(name, float64(x), float64(got))
		}
	}
	if epochs := list.Sum(summary.Phases, func(p record.PhaseSummary) int { return p.Epochs }); job.Epochs != epochs {
		differ("epochs", job.Epochs, epochs)
	}
	return nil
}

func mismatch(job ledger.Job, what string, stated, recomputed any) verify.Mismatch {
	return verify.Mismatch{File: ledger.FileName, What: fmt.Sprintf("job %d: %s", job.Num, what), Stated: inline(stated),
		Recomputed: inline(recomputed)}
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// inline writes a value as JSON does, where it can.
func inline(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
