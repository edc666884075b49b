// Package experiments is a run's life: its folder and lock, its data and policy, the task, signals and
// resume, the summary and the report; and what can be named in a configuration (catalog.go).
//
//	err := experiments.App{}.Run(ctx, composed)
package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/phases"
	"fulcrum/reports"
)

// Version is the program's version; a release build sets it.
const Version = "0.1.0"

type taskFunc func(ctx context.Context, r *run) error

// run is one run in progress. It implements phases.Recorder.
type run struct {
	cfg       *Config
	composed  *configs.Composed
	exp       string   // the chosen experiment, or ""
	overrides []string // of the command line
	dir       string
	hash      string
	saved     *phases.Saved // the state a resume starts from
	resumed   bool
	device    string
	begin     time.Time
	log       *reports.Log
	plotter   *reports.Plotter
	bundle    *beamdata.Bundle
	result    *phases.Result
	seconds   map[string]float64 // of optimizer steps, by phase
	former    *reports.Summary   // of the sitting before a resume
}

// Run executes one job in its run folder. ctx ends on SIGINT or SIGTERM; the state is then saved.
func (a App) Run(ctx context.Context, c *configs.Composed) error {
	return start(ctx, c, c.Choice("exp"), c.TaskOverrides())
}

func start(ctx context.Context, c *configs.Composed, exp string, overrides []string) error {
	cfg, err := decode(c)
	if err != nil {
		return err
	}
	dir, err := hydraValue(c, "run.dir")
	if err != nil {
		return err
	}
	free, err := empty(dir)
	if err != nil {
		return err
	}
	if !free && isRun(dir) && !reusable(dir, cfg) {
		return usagef("%s already holds a run: go on with it (run resume %s), repeat it elsewhere (run --rerun %s hydra.run.dir=…) or name another hydra.run.dir", dir, dir, dir)
	}
	f, err := claim(dir)
	if err != nil {
		return err
	}
	defer f.release()
	if err := f.snapshot(c); err != nil {
		return err
	}
	return execute(ctx, &run{cfg: cfg, composed: c, exp: exp, overrides: overrides}, f)
}

// reusable reports whether a task may replace the files of an earlier run of its own kind in dir.
func reusable(dir string, cfg *Config) bool {
	if cfg.Task == "train" {
		return false
	}
	s, err := reports.ReadSummary(dir)
	return err == nil && s != nil && s.Task == cfg.Task
}

func decode(c *configs.Composed) (*Config, error) {
	cfg := DefaultConfig()
	if err := c.Decode(cfg); err != nil {
		return nil, err
	}
	return cfg, nil
}

// hashExcluded are the sections that do not change what is computed.
var hashExcluded = []string{"hydra", "logging", "report", "predict", "dry_run"}

// execute runs the task inside a claimed folder, then writes summary.json and report.md.
func execute(ctx context.Context, r *run, f *folder) (err error) {
	cfg, saved := r.cfg, r.saved
	task, err := Tasks().Get(cfg.Task)
	if err != nil {
		return err
	}
	r.dir, r.begin, r.seconds = f.dir, time.Now(), map[string]float64{}
	if r.hash, err = r.composed.Fingerprint(hashExcluded...); err != nil {
		return err
	}
	opt := reports.LogOptions{LoggingOptions: cfg.Logging}
	if r.resumed {
		at := reports.Position{}
		if saved != nil {
			at = reports.Position{Phase: saved.Phase(), Epoch: saved.Epoch(), GlobalStep: saved.GlobalStep(), Rows: saved.Rows(), Evals: saved.Evals()}
		}
		opt.Restored = &at
		r.former, _ = reports.ReadSummary(f.dir)
	}
	if r.log, err = reports.OpenLog(f.dir, opt); err != nil {
		return err
	}
	defer r.log.Close()
	fmt.Fprintf(os.Stdout, "%s → %s\n", r.title(), f.dir)

	if cfg.Report.Plots && cfg.Task == "train" {
		r.plotter = reports.StartPlotter(f.dir, time.Duration(cfg.Report.PlotSeconds*float64(time.Second)), func(err error) { r.log.Warnf("plots: %v", err) })
	}
	taskErr := task(ctx, r)
	if r.plotter != nil {
		if err := r.plotter.Close(); err != nil {
			r.log.Warnf("plots: %v", err)
		}
	}
	if errors.Is(taskErr, phases.ErrInterrupted) {
		taskErr = &InterruptedError{context.Cause(ctx), f.dir}
	}
	if err := r.finish(taskErr); err != nil && taskErr == nil {
		taskErr = err
	}
	return taskErr
}

// overridden reports whether a key was set on the command line.
func (r *run) overridden(key string) bool {
	for _, o := range r.overrides {
		if name, _, ok := strings.Cut(strings.TrimLeft(o, "+"), "="); ok && name == key {
			return true
		}
	}
	return false
}

// title is what the run is called in its first line and its report.
func (r *run) title() string {
	if r.exp != "" {
		return r.exp
	}
	return r.cfg.Task
}

func (r *run) logf(format string, args ...any) { r.log.Infof(format, args...) }

// Record implements phases.Recorder.
func (r *run) Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error {
	if err := r.log.Record(kind, phase, epoch, step, globalStep, fields); err != nil {
		return err
	}
	if seconds, ok := fields["step_seconds"].(float64); ok && kind == "step" {
		r.seconds[phase] += seconds
	}
	if r.plotter != nil && kind == "epoch" {
		r.plotter.Redraw()
	}
	return nil
}

// Scores implements phases.Recorder.
func (r *run) Scores(split, policy, phase string, epoch int, metric string, shots int, ids []int64, scores []float64) error {
	return reports.AppendEvals(r.dir, reports.Evaluation{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Metric: metric, Shots: shots, QueryIDs: ids, Scores: scores})
}

// Mark implements phases.Recorder.
func (r *run) Mark() (rows, evals int, err error) {
	return r.log.Mark()
}

// finish writes summary.json and report.md, whatever came of the task.
func (r *run) finish(taskErr error) error {
	s := r.summary(taskErr)
	if err := reports.WriteSummary(r.dir, s); err != nil {
		return err
	}
	if r.cfg.Task != "train" || r.cfg.DryRun {
		return nil
	}
	if err := reports.WriteReport(r.dir); err != nil {
		return err
	}
	if taskErr == nil {
		done, err := reports.ReadSummary(r.dir)
		if err != nil {
			return err
		}
		if err := reports.PrintResults(os.Stdout, done.Evaluations); err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "report: %s\n", filepath.Join(r.dir, "report.md"))
	}
	return nil
}

// summary describes the run's end.
func (r *run) summary(taskErr error) reports.Summary {
	s := reports.Summary{
		State: reports.StateDone, Title: r.title(), Task: r.cfg.Task, Command: r.command(), Overrides: r.overrides,
		Seed: r.cfg.Seed, Device: r.device, Threads: r.threads(), Start: r.begin.Format(time.RFC3339), WallSeconds: r.elapsed(),
		Versions: r.versions(), Warnings: []string{},
	}
	if r.former != nil {
		s.Start = r.former.Start
		s.WallSeconds += r.former.WallSeconds
		s.Resumes = r.former.Resumes
	}
	if r.resumed {
		s.Resumes++
	}
	var interrupted *InterruptedError
	switch {
	case errors.As(taskErr, &interrupted):
		s.State, s.Error = reports.StateInterrupted, taskErr.Error()
	case taskErr != nil:
		s.State, s.Error = reports.StateFailed, taskErr.Error()
	}
	if b := r.bundle; b != nil {
		s.Data = reports.DataSummary{Name: b.Name, Synthetic: b.Synthetic, Notice: b.Notice, Fingerprint: b.Fingerprint, Counts: b.Counts, Shots: b.Shots, EvalName: b.EvalName}
	}
	if res := r.result; res != nil {
		s.Best = &reports.BestSummary{Metric: res.Metric, Mode: res.Mode, Value: reports.Number(res.Value), Phase: res.BestPhase, Epoch: res.BestEpoch, Checkpoint: res.BestFile}
		if len(res.Warnings) > 0 {
			s.Best.Reason = res.Warnings[0]
		}
	}
	var warnings []string
	s.Phases, warnings = r.phaseSummaries()
	s.Warnings = append(s.Warnings, warnings...)
	return s
}

// command is the argv that repeats the run.
func (r *run) command() []string { return append([]string{"run"}, r.overrides...) }

func (r *run) threads() int {
	if r.cfg.Threads > 0 {
		return r.cfg.Threads
	}
	return runtime.NumCPU()
}

func (r *run) versions() map[string]string {
	v := map[string]string{"fulcrum": Version, "go": runtime.Version(), "os": runtime.GOOS + "/" + runtime.GOARCH, "config": r.hash}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v["commit"] = s.Value
			}
		}
	}
	if r.device != "" {
		v["libtorch"] = libtorchVersion()
	}
	return v
}

// phaseSummaries reads what each phase came to from the run's own rows, and the warnings on the way.
func (r *run) phaseSummaries() (summaries []reports.PhaseSummary, warnings []string) {
	recorded, err := reports.ReadRun(r.dir)
	if err != nil {
		r.log.Warnf("summary: %v", err)
		return nil, nil
	}
	for _, name := range recorded.Phases() {
		p := reports.PhaseSummary{Name: name, Final: map[string]reports.Number{}}
		for _, row := range recorded.Epochs {
			if row.Phase != name {
				continue
			}
			p.Epochs, p.Steps = row.Epoch, row.Step
			clear(p.Final)
			for key := range row.Fields {
				if v, ok := row.Number(key); ok {
					p.Final[key] = reports.Number(v)
				}
			}
		}
		if p.Epochs > 0 {
			p.Seconds = r.seconds[name]
			summaries = append(summaries, p)
		}
	}
	for _, e := range recorded.Events {
		if e.Text("severity") == "warning" {
			warnings = append(warnings, e.Text("message"))
		}
		if e.Text("event") == "early_stop" {
			for i := range summaries {
				if summaries[i].Name == e.Phase {
					summaries[i].Stopped = e.Text("message")
				}
			}
		}
	}
	return summaries, warnings
}

// hydraValue returns a value of the hydra node as text, resolved.
func hydraValue(c *configs.Composed, key string) (string, error) {
	text, err := c.YAML("hydra", true, "hydra."+key)
	return strings.TrimSuffix(text, "\n"), err
}
