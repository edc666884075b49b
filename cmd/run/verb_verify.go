//go:build !core

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/views"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/build"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/verify"
)

// verifyVerb computes every number of a report again from the raw records.
func verifyVerb() *verb {
	opt := verify.VerifyOptions{Version: build.Name()}
	f := usage.Flags()
	f.BoolVar(&opt.SkipWeights, "no-checkpoints", false, "accept a folder whose weights are gone")
	asJSON := jsonFlag(f)
	return &verb{
		usage: `run verify outputs/quick

run verify REPORT_OR_FOLDER [--no-checkpoints] [--json]
Computes every number of a run's or sweep's report again from its raw records, draws its plots again, and compares:
one line for each difference, exit 1 if there is any. --no-checkpoints accepts a folder whose weights are gone.
`,
		flags: f,
		takes: new(1),
		run: func(s *session, args []string) error {
			return printVerification(s, args[0], opt, *asJSON)
		},
	}
}

// printVerification prints every mismatch between a report and its records.
func printVerification(s *session, path string, opt verify.VerifyOptions, asJSON bool) error {
	dir, err := reportFolder(path)
	if err != nil {
		return err
	}
	if runfolder.Locked(dir) {
		return fmt.Errorf("%s: it is still being written: verify it when it has ended", dir)
	}
	check := func(dir string) (*verify.Verification, error) { return verifyRun(dir, opt) }
	v, err := (*verify.Verification)(nil), error(nil)
	if ledger.Exists(dir) {
		v, err = views.Verify(s.ctx, dir, check)
	} else {
		v, err = check(dir)
	}
	if err != nil {
		return err
	}
	if asJSON {
		out := verificationJSON{Path: path, Agrees: len(v.Mismatches) == 0, Mismatches: append([]verify.Mismatch{}, v.Mismatches...),
			Checked: append([]string{}, v.Checked...), Notes: append([]string{}, v.Notes...)}
		if err := writeJSON(s.out, out); err != nil {
			return err
		}
	} else {
		for _, m := range v.Mismatches {
			fmt.Fprintln(s.out, stdout.Folded(m.String()))
		}
		for _, note := range v.Notes {
			fmt.Fprintln(s.out, stdout.Folded("note: "+note))
		}
	}
	if n := len(v.Mismatches); n > 0 {
		return fmt.Errorf("%s: %d of its statements differ from its records", path, n)
	}
	if !asJSON {
		fmt.Fprintln(s.out, stdout.Folded(path+": everything agrees: "+v.Summary()))
	}
	return nil
}

// verificationJSON is what run verify --json prints.
type verificationJSON struct {
	Path       string            `json:"path"`
	Agrees     bool              `json:"agrees"`
	Mismatches []verify.Mismatch `json:"mismatches"`
	Checked    []string          `json:"checked"` // what was compared
	Notes      []string          `json:"notes"`   // what could not be
}

// reportFolder returns the folder of the run or sweep that path names: itself, or the one that a report stands in.
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
		return "", usage.Errorf("%v (a report is checked against the records beside it)", runfolder.NoRun(dir))
	}
	return dir, nil
}

// verifyRun checks a run of any task.
func verifyRun(dir string, opt verify.VerifyOptions) (*verify.Verification, error) {
	s, err := record.ReadSummary(dir)
	if err != nil {
		return nil, err
	}
	v, err := verify.VerifyRun(dir, opt)
	if err != nil || s == nil || s.Task != "evaluate" || s.State != record.StateDone {
		return v, err
	}
	text, err := tasks.EvaluationReport(dir)
	if err != nil {
		return nil, err
	}
	return v, v.CompareReport(dir, text, page.Lively{})
}
