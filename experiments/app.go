package experiments

import (
	"cmp"
	"context"
	"os"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/ranks"
	"fulcrum/internal/usage"
	"fulcrum/reports/tracker"
)

// App runs composed configurations and the verbs for package main.
type App struct {
	Trackers map[string]tracker.Open                             // of experiments, by name
	Bring    []tasks.Bring                                       // tasks and sections of annexes
	Judge    func(dir string, epochs int) (job.JudgeFunc, error) // ends bad runs of a sweep early; nil: not built in
	Sweeps   sweep.Annexes
}

// Annexes returns the annexes of sweeps.
func (a App) Annexes() sweep.Annexes { return a.Sweeps }

// Report writes report.md of a sweep's folder.
func (a App) Report(dir string) error {
	if a.Sweeps.Report == nil {
		return sweep.ErrNoReport
	}
	return a.Sweeps.Report(dir)
}

// judge returns the function that may end the run in dir early. Without the annex a sweep that prunes is refused.
func (a App) judge(dir string, epochs int) (job.JudgeFunc, error) {
	if a.Judge != nil {
		return a.Judge(dir, epochs)
	}
	saved, err := runfolder.ReadSaved(dir)
	_, inSweep := saved.Hydra.Job.Num.(int)
	if name := saved.Hydra.Sweeper.Pruner.Name; err == nil && inSweep && name != "" && name != sweeper.NoPruner {
		return nil, sweeper.Missing("hydra.sweeper.pruner.name=" + name)
	}
	return nil, nil
}

// Schema returns the type of every configuration.
func (a App) Schema() (*configs.Schema, error) { return tasks.Schema(a.Bring...) }

// Check refuses a configuration from which no run could start.
func (App) Check(c *configs.Composed) error {
	cfg, err := job.Decode(c)
	if err == nil && cfg.Init.Checkpoint != nil {
		_, err = job.ResolveCheckpoint("init.checkpoint", *cfg.Init.Checkpoint)
	}
	return err
}

// RefuseIdle refuses keys that the user has set and that act nowhere in the run. A sweep's or study's keys act in some of its jobs.
func (App) RefuseIdle(c *configs.Composed) error {
	if _, job := os.LookupEnv(runfolder.ExpectedHash); job {
		return nil
	}
	return c.RefuseIdle(c.Idle(append(c.Typed(c.TaskOverrides()), c.Own()...)))
}

// Sweep runs a multirun.
func (a App) Sweep(ctx context.Context, req configs.Request, detached bool) error {
	if place, err := ranks.Here(); err != nil || place != nil {
		return cmp.Or(err, usage.Errorf("a sweep is started alone, in one process: give its jobs several by parallel.processes=2"))
	}
	return sweep.Start(ctx, a, req, detached)
}

// Jobs lists the jobs of a multirun for --cfg sweep.
func (a App) Jobs(req configs.Request) (string, error) { return sweep.Jobs(a, req) }
