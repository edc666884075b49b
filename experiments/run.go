// Package experiments is a run's life: its folder and lock, its data and policy, the task, signals and
// resume, the summary and the report.
//
//	err := experiments.App{}.Run(ctx, composed)
package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/build"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/tracker"
)

// run is a run in progress.
type run struct {
	*job.Job
	composed *configs.Composed
	exp      string // the chosen experiment, or ""
	folder   *runfolder.Folder
	instead  string // of a dry run: the folder that the run would have
	resumed  bool
	anew     []string // overrides of a resumed run
	begin    time.Time
	trackers map[string]tracker.Open
	judge    func(dir string, epochs int) (job.JudgeFunc, error)
	sinks    []tracker.Sink // of the trackers that the run asks for
	sealed   atomic.Bool    // run.log is complete: its digest is being taken
	plotter  *runreport.Plotter
	earlier  attempts // before a resume
}

// Run executes one job in its run folder. ctx ends on SIGINT or SIGTERM; the state is then saved.
func (a App) Run(ctx context.Context, c *configs.Composed) error {
	if err := c.Secrets(); err != nil {
		return err
	}
	if err := a.RefuseIdle(c); err != nil {
		return err
	}
	dir, err := runfolder.HydraValue(c, "run.dir")
	if err != nil {
		return err
	}
	if err := runfolder.Unchanged(c); err != nil {
		return err
	}
	if dir == "" {
		return usage.Errorf("%s", emptyFolder)
	}
	made := runfolder.FirstMissing(dir)
	if dir, err = setEnvironment(c, dir); err != nil {
		return err
	}
	return a.start(ctx, c, c.Choice("exp"), c.TaskOverrides(), dir, made)
}

// emptyFolder refuses hydra.run.dir="".
const emptyFolder = "hydra.run.dir is empty: want a folder, as in hydra.run.dir=outputs/mine; left out, it is outputs/DATE/TIME"

// setEnvironment sets the variables of hydra.job.env_set in this process and, with
// hydra.job.chdir, makes the run folder dir the current one. It returns dir as seen from the current folder.
func setEnvironment(c *configs.Composed, dir string) (string, error) {
	h, err := c.Hydra()
	if err != nil {
		return dir, err
	}
	for _, pair := range h.Env {
		name, value, _ := strings.Cut(pair, "=")
		if err := os.Setenv(name, value); err != nil {
			return dir, usage.Errorf("hydra.job.env_set.%s: %v", name, err)
		}
	}
	if !h.Chdir {
		return dir, nil
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return dir, err
	}
	if dry, _ := c.Value("dry_run").(bool); dry && runfolder.FirstMissing(dir) != "" { // nothing is made; relative paths lead nowhere
		return dir, nil
	}
	if err := atomicfile.MkdirAll(dir); err != nil {
		return dir, &runfolder.Error{Dir: dir, Err: err}
	}
	if err := os.Chdir(dir); err != nil {
		return dir, &runfolder.Error{Dir: dir, Err: err}
	}
	return dir, nil
}

// start runs a configuration in dir. made is the outermost of its folders that was not there before; "": none.
func (a App) start(ctx context.Context, c *configs.Composed, exp string, overrides []string, dir, made string) error {
	cfg, err := job.Decode(c)
	if err != nil {
		return err
	}
	if err := c.Secrets(); err != nil {
		return err
	}
	if err := runfolder.RefuseForeign(dir, cfg.Task, cfg.Does().Trains); err != nil { // before anything is written there
		return err
	}
	r := &run{Job: &job.Job{Config: cfg, Overrides: overrides, Compose: c.With}, composed: c, exp: exp, trackers: a.Trackers, judge: a.judge}
	return r.inProcesses(ctx, func() error { return a.lead(ctx, r, dir, made) })
}

// lead runs in dir.
func (a App) lead(ctx context.Context, r *run, dir, made string) error {
	cfg, c := r.Config, r.composed
	if cfg.DryRun {
		return dryRun(ctx, r, dir)
	}
	before, err := runfolder.Entries(dir)
	if err != nil {
		return err
	}
	f, err := runfolder.Claim(dir)
	if err != nil {
		return err
	}
	defer f.Release()
	if err := f.Share(r.Ranks.Hosts()); err != nil {
		return err
	}
	if err := runfolder.RefuseForeign(dir, cfg.Task, cfg.Does().Trains); err != nil { // another process may have come first
		return err
	}
	again := runfolder.IsRun(dir)
	if runfolder.Unstarted(before) {
		before = nil
	}
	clean := f.CleanConfig
	if again || before == nil {
		clean = f.Clean
	}
	if err := clean(); err != nil {
		return err
	}
	refused := true // as long as the task has not begun
	if again {
		end, err := f.Reuse()
		if err != nil {
			return err
		}
		defer func() { end(refused) }()
	}
	h, err := c.Hydra()
	if err != nil {
		return err
	}
	if err := f.Link(h.OutputSubdir); err != nil {
		f.Forget(before, made)
		return err
	}
	if err := f.Snapshot(c); err != nil {
		return err
	}
	err = execute(ctx, r, f)
	if refused = r.refused(err); refused && !again { // the corrected command may have the folder
		f.Forget(before, made)
	}
	return err
}

// refused reports whether err ended the run before it began: a mistake in the configuration, or an obstacle in a file or the
// machine. The job of a sweep keeps its folder all the same: its result stands there.
func (r *run) refused(err error) bool {
	_, asked := errors.AsType[*usage.Error](err)
	_, interrupted := errors.AsType[*runfolder.InterruptedError](err)
	return asked || err != nil && !r.Begun && !interrupted && os.Getenv(runfolder.ExpectedHash) == ""
}

// dryRun makes a dry run in a folder of its own, so that dir stays as it is.
func dryRun(ctx context.Context, r *run, dir string) error {
	if err := runfolder.Usable(dir); err != nil {
		return err
	}
	tmp, remove, err := interrupt.Folder("", "fulcrum-dry-run-")
	if err != nil {
		return err
	}
	defer remove()
	f, err := runfolder.Claim(tmp)
	if err != nil {
		return err
	}
	defer f.Release()
	r.instead = dir
	err = execute(ctx, r, f)
	if interrupted, ok := errors.AsType[*runfolder.InterruptedError](err); ok { // there is nothing to resume
		return interrupted.Cause
	}
	return err
}

// execute runs the task inside a claimed folder, then writes summary.json and report.md.
func execute(ctx context.Context, r *run, f *runfolder.Folder) (err error) {
	cfg := r.Config
	task, err := cfg.Entries.Tasks.Get(cfg.Task)
	if err != nil {
		return err
	}
	if !cfg.DryRun {
		stdout.OutliveReaders()
	}
	r.folder, r.Dir, r.begin = f, f.Dir, time.Now()
	r.Held = f.Held
	if saved, err := runfolder.ReadSaved(f.Dir); err == nil { // a dry run saves nothing
		r.Sweep = saved.SweepFolder()
	}
	r.Judge = func(epochs int) (job.JudgeFunc, error) { return r.judge(f.Dir, epochs) }
	if r.Hash, err = runfolder.Fingerprint(r.composed); err != nil {
		return err
	}
	where := f.Dir
	if cfg.DryRun {
		where = r.instead + " (a dry run: nothing is written there)"
	}
	stdout.Printf("%s %s → %s\n", r.title(), task.On(cfg), where)
	opt := r.logOptions()
	if r.Log, err = record.OpenLog(f.Dir, opt); err != nil {
		return err
	}
	defer r.Log.Close()
	for _, key := range r.anew { // the value may be a secret
		key, _, _ = strings.Cut(key, "=")
		r.Log.Infof("goes on with another value of %s", key)
	}
	for _, text := range r.composed.HydraIdle() {
		r.Log.Warnf("%s", text)
	}
	for _, name := range opt.Verbose {
		if name != "" && !slices.Contains(cfg.Schedule, name) {
			r.Log.Warnf("hydra.verbose: %s has no effect: want true, or phases of schedule: %s", name, strings.Join(cfg.Schedule, ", "))
		}
	}
	r.warnOfIdle()
	r.track()
	if cfg.Report.Plots && cfg.Trains() {
		r.plotter = runreport.StartPlotter(f.Dir, time.Duration(cfg.Report.PlotSeconds*float64(time.Second)),
			func(err error) { r.Log.Warnf("plots: %v", err) })
		r.Redraw = r.plotter.Redraw
	}
	defer r.Close()
	r.Holder = interrupt.Hold(r.endAtOnce())
	defer r.Holder.Release()
	taskErr := torchx.Try(func() error { return task.Run(ctx, r.Job) }) // an operation that fails outside a training step too
	r.Holder.Heed()                                                     // what has come of the task is written
	taskErr = withRoom(taskErr, cfg)
	r.Close()
	if !errors.Is(taskErr, phases.ErrInterrupted) {
		taskErr = tasks.Unchanged(r.Job, taskErr)
	}
	if errors.Is(taskErr, phases.ErrInterrupted) || errors.Is(taskErr, context.Canceled) ||
		ctx.Err() != nil && errors.Is(taskErr, context.Cause(ctx)) { // of what was asked meanwhile
		states, _ := regular.Glob(filepath.Join(f.Dir, "checkpoints"), "*.state")
		taskErr = &runfolder.InterruptedError{Cause: asked(ctx, taskErr), Dir: f.Dir, Unsaved: !task.Saves || cfg.Trains() && len(states) == 0}
	}
	if taskErr != nil { // before the digest of run.log is taken
		r.Log.Note(record.LevelError, taskErr.Error())
	}
	if err := r.finish(taskErr); taskErr == nil {
		taskErr = err
	}
	r.untrack()
	if !cfg.DryRun && !r.refused(taskErr) {
		r.tell()
	}
	return taskErr
}

// withRoom adds advice to an error about a full device memory: the keys that make a run smaller.
func withRoom(err error, c *job.Config) error {
	if full, ok := errors.AsType[*torchx.OpError](err); !ok || !full.OutOfMemory() {
		return err
	}
	text := "" // what only token policies have
	if c.Text() != nil {
		text = fmt.Sprintf(", the phase's group_size, %s.generation.max_new_tokens, or set %[1]s.generation.slots, %[1]s.dtype=bfloat16, "+
			"%[1]s.gradient_checkpointing=true", c.Section())
	}
	return fmt.Errorf("%w; lower the phase's micro_batch (the same loss in more passes), data.batch_size%s", err, text)
}

// endAtOnce returns the function that ends the run at a signal while its task has nothing to save: it reads data, or measures
// baselines. The summary then holds the facts known before, and those of the rows.
func (r *run) endAtOnce() func(cause error) error {
	s := r.summaryBefore()
	return func(cause error) error {
		if r.Config.DryRun {
			return cause
		}
		err := &runfolder.InterruptedError{Cause: cause, Dir: r.folder.Dir, Unsaved: r.Saved == nil}
		r.Log.Note(record.LevelError, err.Error()) //nolint:errcheck // the process ends
		if r.folder.Held() != nil {
			return err
		}
		s.State, s.Error, s.WallSeconds = record.StateInterrupted, err.Error(), s.WallSeconds+time.Since(r.begin).Seconds()
		if rows, err := record.ReadRun(r.Dir); err == nil {
			s.AddRecorded(rows)
		}
		_ = results.WriteSummary(r.Dir, s) // a run without one was killed, and is resumed as well
		return err
	}
}

// tell sends the summary to on_end, and to the callbacks of a job, which a run alone is too.
func (r *run) tell() {
	if os.Getenv(runfolder.Repeats) != "" {
		return
	}
	s, err := record.ReadSummary(r.Dir)
	if err != nil || s == nil {
		return
	}
	warn := func(text string) { stdout.Message(stdout.Errors(), "warning: "+text) }
	r.Config.OnEnd.Tell(r.Dir, s.State, s, warn)
	if h, err := r.composed.Hydra(); err != nil {
		warn(err.Error())
	} else {
		runfolder.Callbacks("on_job_end", h.OnJobEnd, r.Dir, s.State, s, warn)
	}
}

// logOptions opens the log at its end, or at the state that a resume starts from.
func (r *run) logOptions() record.LogOptions {
	opt := record.LogOptions{LoggingOptions: r.Config.Logging}
	opt.TensorBoard = opt.TensorBoard && r.Config.Trains()
	if h, err := r.composed.Hydra(); err == nil { // of a new run it was checked before
		opt.Verbose = h.Verbose
	}
	if r.resumed {
		at := record.Position{}
		if s := r.Saved; s != nil {
			at = record.Position{Phase: s.Phase(), Epoch: s.Epoch(), Step: s.Step(), GlobalStep: s.GlobalStep(), Rows: s.Rows(), Evals: s.Evals(),
				Completions: s.Completions(), Passed: s.Passed}
		}
		opt.Restored = &at
		r.earlier = earlierAttempts(r.Dir)
	}
	return opt
}

// title names the run in its first line and its report.
func (r *run) title() string {
	title := r.Config.Task
	if r.exp != "" && r.Config.Does().Trains {
		title = r.exp
	}
	return title + r.Data.Scorer.With()
}

// finish writes summary.json, the last plots, the digests of all records and report.md, even after an error. It returns the
// error of the task, or its own.
func (r *run) finish(taskErr error) error {
	if err := r.folder.Held(); err != nil {
		return err
	}
	if err := r.Log.Sync(); err != nil { // a summary that says done says so of all rows
		return err
	}
	s := r.summary(taskErr)
	if r.Config.Trains() { // a report in the folder then belongs to this end, whatever the clock says
		os.Remove(filepath.Join(r.Dir, page.HtmlFile))
	}
	err := results.WriteSummary(r.Dir, s)
	if _, ok := errors.AsType[*results.JudgeError](err); ok { // the run ends as a failed one that says why, without results
		if s.Evaluations = []record.StageResult{}; taskErr == nil {
			s.State, s.Error, taskErr = record.StateFailed, err.Error(), err
			r.Log.Note(record.LevelError, s.Error)
		}
		err = results.WriteSummary(r.Dir, s)
	}
	if r.plotter != nil {
		if plotErr := r.plotter.Close(); plotErr != nil && err == nil && taskErr == nil {
			r.Log.Warnf("plots: %v", plotErr)
		}
	}
	if err != nil || r.Config.DryRun {
		return err
	}
	r.Log.Unwatch()
	r.sealed.Store(true)
	if err := r.Log.Sync(); err != nil { // the digests are of bytes that survive a power cut
		return err
	}
	if err := writeManifest(r.Dir); err != nil {
		return err
	}
	if !r.Config.Does().Trains {
		return taskErr
	}
	if r.plotter != nil { // it has drawn
		err = runreport.WriteReport(r.Dir)
	} else {
		err = writeReport(r.Dir, r.Config)
	}
	if err != nil || taskErr != nil {
		return cmp.Or(taskErr, err)
	}
	return r.printEnd()
}

// writeManifest writes manifest.json of the run in dir, and names checkpoints that have changed since they were saved.
func writeManifest(dir string) error {
	damaged, err := record.WriteManifest(dir, build.Name(), phases.Written(dir))
	for _, name := range damaged {
		stdout.Message(stdout.Errors(), fmt.Sprintf("warning: %s: damaged (its content is not what was saved)", filepath.Join(dir, name)))
	}
	return err
}
