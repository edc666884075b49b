// Package views holds what annexes show of a sweep's folder: its report, the tables of that, the difference from another one, and whether
// all of it agrees with what the jobs left.
package views

import (
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/reports/sweepreport"
)

// WriteReport writes report.md and, of a sweep that searched, optimization_results.yaml.
func WriteReport(dir string) error {
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return err
	}
	opt, rows := sweep.ResultOf(dir, s, jobs)
	if s.Sweeper != sweeper.Basic && s.Sweeper != sweeper.Study {
		if err := sweepreport.WriteOptimizationResults(dir, rows, opt); err != nil {
			return err
		}
	}
	return sweepreport.WriteReport(dir, rows, opt)
}

// Page is the view that the sweep's report is written from.
func Page(dir string) (*sweepreport.View, error) {
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return nil, err
	}
	opt, rows := sweep.ResultOf(dir, s, jobs)
	return sweepreport.PageOf(dir, rows, opt), nil
}
