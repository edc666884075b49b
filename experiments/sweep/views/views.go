// Package views holds what annexes show of a sweep's folder: its report, the tables of that, the difference from another one, and whether
// all of it agrees with what the jobs left.
package views

import (
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/reports/sweepreport"
)

// WriteReport writes report.md and, of a sweep that searched, optimization_results.yaml.
func WriteReport(dir string) error {
	opt, rows, err := sweep.ReadJobs(dir)
	if err != nil {
		return err
	}
	if opt.Sweeper != sweeper.Basic && opt.Sweeper != sweeper.Study {
		if err := sweepreport.WriteOptimizationResults(dir, rows, opt); err != nil {
			return err
		}
	}
	return sweepreport.WriteReport(dir, rows, opt)
}

// Page is the view that the sweep's report is written from.
func Page(dir string) (*sweepreport.View, error) {
	opt, rows, err := sweep.ReadJobs(dir)
	if err != nil {
		return nil, err
	}
	return sweepreport.PageOf(dir, rows, opt), nil
}
