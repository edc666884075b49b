package sweep

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/reports/sweeps"
)

// ReadJobs returns what a report says of a sweep as its folder and its jobs' folders say it now.
func ReadJobs(dir string) (sweeps.Options, []sweeps.Job, error) {
	s, jobs, err := observed(dir)
	if err != nil {
		return sweeps.Options{}, nil, err
	}
	opt, rows := ResultOf(dir, s, jobs)
	return opt, rows, nil
}

// generationKey stands in reports for the configuration files that a job was composed from: 1, and one
// more for each change that was accepted (multirun.2.yaml, …).
const generationKey = "configuration"

// ResultOf returns what a ledger says of a sweep in folder dir: its options and its jobs.
func ResultOf(dir string, s ledger.Sweep, jobs []ledger.Job) (sweeps.Options, []sweeps.Job) {
	opt := sweeps.Options{
		Title: fmt.Sprintf("Sweep of %d jobs", len(jobs)), Command: s.Command, Sweeper: s.Sweeper, Launcher: s.Launcher,
		Pruner: s.Pruner, Constraints: s.Constraints, Objectives: s.Objectives, Told: sweeps.ToldIn(dir),
	}
	for _, d := range s.Dimensions {
		opt.Dimensions = append(opt.Dimensions, sweeps.Dimension{Key: d.Key, Log: d.Log(), Interval: d.Interval(), Values: d.Choices})
	}
	if s.Study != nil {
		arms := sweeps.Dimension{Key: sweeps.ArmKey, Values: list.Map(s.Study.Arms, func(a sweeps.StudyArm) string { return a.Name })}
		opt.Dimensions, opt.Study, opt.Ask = slices.Insert(opt.Dimensions, 0, arms), s.Study, s.Ask
		opt.Title = fmt.Sprintf("Study of %d arms", len(s.Study.Arms))
	}
	if s.Generation > 1 { // jobs of several configurations are no repetitions of each other
		numbers := list.Make(s.Generation, func(i int) string { return strconv.Itoa(i + 1) })
		opt.Dimensions = append(opt.Dimensions, sweeps.Dimension{Key: generationKey, Values: numbers})
		opt.Title += fmt.Sprintf(", with %d configurations", s.Generation)
	}
	rows := make([]sweeps.Job, len(jobs))
	for i, j := range jobs {
		rows[i] = sweeps.Job{
			Number: j.Num, Dir: filepath.Join(dir, j.Dir), Overrides: shownOverrides(s.Study, j), State: j.State, Params: map[string]string{},
			Violation: float64(j.Violation), Epochs: j.Epochs, Seconds: j.Seconds, Attempts: j.Attempts, Cause: j.Cause, Tail: j.Tail,
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
			rows[i].Params[sweeps.ArmKey] = j.Arm
			rows[i].Command = append(rows[i].Command, startOf(dir, s.Study, j, jobs)...)
		}
		if s.Generation > 1 {
			rows[i].Params[generationKey] = strconv.Itoa(j.Generation)
			rows[i].Overrides = append(slices.Clone(rows[i].Overrides), fmt.Sprintf("%s=%d", generationKey, j.Generation))
		}
		for _, o := range j.Objectives {
			rows[i].Objectives = append(rows[i].Objectives, float64(o.Value))
		}
	}
	if len(s.Objectives) == 0 {
		opt.Objectives = ownObjectives(jobs, rows)
		opt.Mixed = len(opt.Objectives) > 1
	}
	return opt, rows
}

// ownObjectives are the metrics by which jobs without a common objective chose their best checkpoints. A row is NaN in those of others.
func ownObjectives(jobs []ledger.Job, rows []sweeps.Job) []sweeps.Objective {
	of := func(o ledger.Objective) sweeps.Objective { return sweeps.Objective{Name: o.Name, Minimize: o.Minimize} }
	var all []sweeps.Objective
	for _, j := range jobs {
		all = list.Unique(append(all, list.Map(j.Objectives, of)...))
	}
	for i, j := range jobs {
		if len(j.Objectives) > 0 {
			rows[i].Objectives = slices.Repeat([]float64{math.NaN()}, len(all))
			rows[i].Objectives[slices.Index(all, of(j.Objectives[0]))] = float64(j.Objectives[0].Value)
		}
	}
	return all
}
