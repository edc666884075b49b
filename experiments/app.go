package experiments

import (
	"context"
	"os"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/tasks"
	"fulcrum/reports/tracker"
)

// App runs composed configurations and the verbs for package main.
type App struct {
	Trackers    map[string]tracker.Open // of experiments, by name
	Bring       []tasks.Bring           // tasks and sections of annexes
	SweepReport func(dir string) error  // writes report.md of a sweep's folder; nil: that annex is not built in
}

// Report writes report.md of a sweep's folder.
func (a App) Report(dir string) error {
	if a.SweepReport == nil {
		return sweep.ErrNoReport
	}
	return a.SweepReport(dir)
}

// Schema returns the type of every configuration of ours.
func (a App) Schema() (*configs.Schema, error) { return tasks.Schema(a.Bring...) }

// Check refuses a configuration from which no run could start.
func (App) Check(c *configs.Composed) error {
	_, err := job.Decode(c)
	return err
}

// RefuseIdle refuses what the user has set and has no effect in the run. What a sweep or a study gives its jobs acts in some of them.
func (App) RefuseIdle(c *configs.Composed) error {
	if _, job := os.LookupEnv(runfolder.ExpectedHash); job {
		return nil
	}
	return c.RefuseIdle(c.Idle(append(c.Typed(c.TaskOverrides()), c.Own()...)))
}

// Sweep runs a multirun.
func (a App) Sweep(ctx context.Context, req configs.Request, detached bool) error {
	return sweep.Start(ctx, a, req, detached)
}

// Jobs lists the jobs of a multirun for --cfg sweep.
func (a App) Jobs(req configs.Request) (string, error) { return sweep.Jobs(a, req) }
