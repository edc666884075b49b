package experiments_test

import (
	"errors"
	"testing"

	"fulcrum/experiments"
	"fulcrum/experiments/sweep"
)

// A program without sweep reports says so, and one that has them writes those of the folder asked for.
func TestSweepReportIsAnAnnex(t *testing.T) {
	if err := (experiments.App{}).Report("dir"); !errors.Is(err, sweep.ErrNoReport) {
		t.Errorf("without the annex: %v", err)
	}
	written := ""
	app := experiments.App{Sweeps: sweep.Annexes{Report: func(dir string) error { written = dir; return nil }}}
	if err := app.Report("dir"); err != nil || written != "dir" {
		t.Errorf("with it: %v, report of %q", err, written)
	}
}
