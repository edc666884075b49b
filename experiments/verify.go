package experiments

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/build"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports"
)

// skipWeights checks a report that was handed in without its checkpoints.
const skipWeights = "--no-checkpoints"

// verbVerify computes every number of a report again from the raw records.
func verbVerify(ctx context.Context, _ App, args []string) error {
	opt := reports.VerifyOptions{Version: build.Name()}
	var paths []string
	for _, arg := range args {
		if arg == skipWeights {
			opt.SkipWeights = true
		} else {
			paths = append(paths, arg)
		}
	}
	if err := want(paths, 1, "verify REPORT_OR_FOLDER ["+skipWeights+"]"); err != nil {
		return err
	}
	dir, err := reportFolder(paths[0])
	if err != nil {
		return err
	}
	if runfolder.Locked(dir) {
		return fmt.Errorf("%s: it is still being written: verify it when it has ended", dir)
	}
	check := verifyRun
	if ledger.Exists(dir) {
		check = verifySweep
	}
	v, err := check(ctx, dir, opt)
	if err != nil {
		return err
	}
	for _, m := range v.Mismatches {
		stdout.Println(m)
	}
	for _, note := range v.Notes {
		stdout.Printf("note: %s\n", note)
	}
	if n := len(v.Mismatches); n > 0 {
		return fmt.Errorf("%s: %d of its statements differ from its records", paths[0], n)
	}
	stdout.Printf("%s: everything agrees: %s\n", paths[0], v.Summary())
	return nil
}

// reportFolder is the folder of the run or sweep that path names: itself, or the one that a report stands in.
func reportFolder(path string) (string, error) {
	if err := runfolder.CheckExists(path); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", usage.Errorf("%v", err)
	}
	dir := path
	if !info.IsDir() {
		if name := filepath.Base(path); name != "report.md" && name != "report.html" {
			return "", usage.Errorf("%s: want report.md, report.html or the folder of a run or sweep", path)
		}
		dir = filepath.Dir(path)
	}
	if !ledger.Exists(dir) && !runfolder.IsRun(dir) {
		return "", usage.Errorf("%s: neither a run folder nor a sweep folder: a report is checked against the records beside it", dir)
	}
	return dir, nil
}

// verifyRun checks a run of any task.
func verifyRun(_ context.Context, dir string, opt reports.VerifyOptions) (*reports.Verification, error) {
	s, err := reports.ReadSummary(dir)
	if err != nil {
		return nil, err
	}
	v, err := reports.VerifyRun(dir, opt)
	if err != nil || s == nil || s.Task != "evaluate" || s.State != reports.StateDone {
		return v, err
	}
	text, err := tasks.EvaluationReport(dir)
	if err != nil {
		return nil, err
	}
	return v, v.CompareReport(dir, text)
}

// verifySweep checks a sweep's report, what its ledger says of each job, and each job's own report.
func verifySweep(ctx context.Context, dir string, opt reports.VerifyOptions) (*reports.Verification, error) {
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return nil, err
	}
	options, rows := sweep.ReportInput(dir, s, jobs)
	v, err := reports.VerifySweep(dir, rows, options)
	if err != nil {
		return nil, err
	}
	checked := 0
	for _, job := range jobs {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		at := filepath.Join(dir, job.Dir)
		if !launcher.Ended(job.State) || !runfolder.IsRun(at) { // a job may fail before it is a run
			continue
		}
		checked++
		if err := verifyResult(v, s, job, at); err != nil {
			return nil, err
		}
		of, err := verifyRun(ctx, at, opt)
		if err != nil {
			return nil, err
		}
		v.Add(filepath.ToSlash(job.Dir), of)
	}
	v.Checked = append(v.Checked, fmt.Sprintf("%d of %d jobs, each as a run and against %s", checked, len(jobs), ledger.FileName))
	return v, nil
}

// verifyResult compares what the ledger says of a job with what the job's own records say.
func verifyResult(v *reports.Verification, s ledger.Sweep, job ledger.Job, dir string) error {
	differ := func(what string, stated, recomputed any) {
		v.Mismatches = append(v.Mismatches, reports.Mismatch{File: ledger.FileName, What: fmt.Sprintf("job %d: %s", job.Num, what), Stated: inline(stated), Recomputed: inline(recomputed)})
	}
	summary, err := reports.ReadSummary(dir)
	if err != nil {
		return err
	}
	if summary == nil {
		if job.State != launcher.Failed { // it may have been killed
			differ("state", job.State, "no summary.json")
		}
		return nil
	}
	if job.State != summary.State && !(job.State == launcher.Failed && summary.State == reports.StateInterrupted) {
		differ("state", job.State, summary.State)
	}
	if job.State == launcher.Failed {
		return nil
	}
	judged := sweeper.DefaultOptions()
	judged.Constraints = s.Constraints
	goals, err := judged.Goals()
	if err != nil {
		return err
	}
	goals.Objectives = nil
	for _, o := range job.Objectives {
		named := slices.ContainsFunc(s.Objectives, func(n ledger.Objective) bool { return n.Name == o.Name })
		objective := sweeper.Objective{}
		if named {
			objective.Name = o.Name
		}
		goals.Objectives = append(goals.Objectives, objective)
	}
	outcome, err := goals.Read(dir)
	if err != nil {
		return err
	}
	for i, o := range job.Objectives {
		if o.Name != outcome.Names[i] {
			differ("objective", o.Name, outcome.Names[i])
		} else if got := outcome.Values[i]; !same(float64(o.Value), got) {
			differ(o.Name, float64(o.Value), got)
		}
	}
	if !same(job.Violation, outcome.Violation) {
		differ("violation of the constraints", job.Violation, outcome.Violation)
	}
	for name, x := range job.Metrics {
		if got, ok := outcome.Metrics[name]; !ok || !same(x, got) {
			differ(name, x, got)
		}
	}
	epochs := 0
	for _, phase := range summary.Phases {
		epochs += phase.Epochs
	}
	if job.Epochs != epochs {
		differ("epochs", job.Epochs, epochs)
	}
	return nil
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
