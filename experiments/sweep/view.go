package sweep

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/reports/page"
	"fulcrum/reports/sweepreport"
)

// WriteReport writes report.md and, of a sweep that searched, optimization_results.yaml.
func WriteReport(dir string) error {
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return err
	}
	opt, rows := reportInput(dir, s, jobs)
	if s.Sweeper != sweeper.Basic && s.Sweeper != sweeper.Study {
		if err := sweepreport.WriteOptimizationResults(dir, rows, opt); err != nil {
			return err
		}
	}
	return sweepreport.WriteReport(dir, rows, opt)
}

// ReadJobs returns what a report says of a sweep as its folder and its jobs' folders say it now.
func ReadJobs(dir string) (sweepreport.Options, []sweepreport.Job, error) {
	s, jobs, err := observed(dir)
	if err != nil {
		return sweepreport.Options{}, nil, err
	}
	opt, rows := reportInput(dir, s, jobs)
	return opt, rows, nil
}

// Tables are those of the sweep's report.
func Tables(dir string) ([]*page.Table, error) {
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return nil, err
	}
	opt, rows := reportInput(dir, s, jobs)
	return sweepreport.PageOf(dir, rows, opt).Tables(), nil
}

// generationKey stands in reports for the configuration files that a job was composed from: 1, and one
// more for each change that was accepted (multirun.2.yaml, …).
const generationKey = "configuration"

// reportInput returns what a report says of a sweep: its options and its jobs.
func reportInput(dir string, s ledger.Sweep, jobs []ledger.Job) (sweepreport.Options, []sweepreport.Job) {
	opt := sweepreport.Options{
		Title: fmt.Sprintf("Sweep of %d jobs", len(jobs)), Command: s.Command, Sweeper: s.Sweeper, Launcher: s.Launcher,
		Pruner: s.Pruner, Constraints: s.Constraints,
	}
	for _, d := range s.Dimensions {
		opt.Dimensions = append(opt.Dimensions, sweepreport.Dimension{Key: d.Key, Log: d.Log(), Interval: d.Interval(), Values: d.Choices})
	}
	for _, o := range s.Objectives {
		opt.Objectives = append(opt.Objectives, sweepreport.Objective{Name: o.Name, Minimize: o.Minimize})
	}
	if s.Study != nil {
		arms := sweepreport.Dimension{Key: sweepreport.ArmKey}
		for _, arm := range s.Study.Arms {
			arms.Values = append(arms.Values, arm.Name)
		}
		opt.Dimensions, opt.Study = slices.Insert(opt.Dimensions, 0, arms), s.Study
		opt.Title = fmt.Sprintf("Study of %d arms", len(s.Study.Arms))
	}
	named := len(opt.Objectives) > 0
	if s.Generation > 1 { // jobs of several configurations are no repetitions of each other
		opt.Dimensions = append(opt.Dimensions, sweepreport.Dimension{Key: generationKey})
		for g := 1; g <= s.Generation; g++ {
			last := &opt.Dimensions[len(opt.Dimensions)-1]
			last.Values = append(last.Values, strconv.Itoa(g))
		}
		opt.Title += fmt.Sprintf(", with %d configurations", s.Generation)
	}
	rows := make([]sweepreport.Job, len(jobs))
	for i, j := range jobs {
		rows[i] = sweepreport.Job{
			Number: j.Num, Dir: filepath.Join(dir, j.Dir), Overrides: shownOverrides(s.Study, j), State: j.State, Params: map[string]string{},
			Violation: j.Violation, Epochs: j.Epochs, Seconds: j.Seconds, Attempts: j.Attempts, Cause: j.Cause, Tail: j.Tail,
			Command: slices.Concat(s.Command[:min(1, len(s.Command))], s.Flags, j.Overrides),
		}
		if epoch, known := j.Metrics[sweeper.BestEpoch]; known {
			rows[i].Untrained = epoch == 0
		}
		if j.ExitCode != nil {
			rows[i].ExitCode = *j.ExitCode
		}
		for k, d := range s.Dimensions {
			rows[i].Params[d.Key] = j.Params[k]
		}
		if s.Study != nil {
			rows[i].Params[sweepreport.ArmKey] = j.Arm
			rows[i].Command = append(rows[i].Command, startOf(dir, s.Study, j, jobs)...)
		}
		if s.Generation > 1 {
			rows[i].Params[generationKey] = strconv.Itoa(j.Generation)
			rows[i].Overrides = append(slices.Clone(rows[i].Overrides), fmt.Sprintf("%s=%d", generationKey, j.Generation))
		}
		for k, o := range j.Objectives {
			rows[i].Objectives = append(rows[i].Objectives, float64(o.Value))
			if !named && k == len(opt.Objectives) {
				opt.Objectives = append(opt.Objectives, sweepreport.Objective{Name: o.Name, Minimize: o.Minimize})
			}
		}
	}
	return opt, rows
}
