package experiments

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"fulcrum/configs"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
	"fulcrum/reports/sweepreport"
)

// controllerLog is what a detached controller prints.
const controllerLog = "controller.log"

// resumption says how a sweep is to go on.
type resumption struct {
	accept    bool     // a configuration that has changed
	retry     bool     // jobs that have failed
	detached  bool     // in a process of its own
	overrides []string // of what may change in a sweep
}

// mayChange are the keys of the hydra node that a sweep may go on with other values of. Everything else
// decides what its jobs compute, or which they are.
var mayChange = []string{
	"hydra/launcher", "hydra.launcher", "hydra.sweeper.n_trials", "hydra.sweeper.n_jobs", "hydra.sweeper.on_failure", "hydra.sweeper.max_failure_rate",
	"hydra.sweeper.max_batch_size", "hydra.sweeper.objective", "hydra.sweeper.direction", "hydra.sweeper.constraints",
}

func (r resumption) check() error {
	for _, o := range r.overrides {
		key, _, _ := strings.Cut(strings.TrimLeft(o, "+~"), "=")
		if !slices.ContainsFunc(mayChange, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") }) {
			return usage.Errorf("%s: a sweep goes on with its own configuration; only these may change: %s", o, strings.Join(mayChange, ", "))
		}
	}
	return nil
}

// resumeSweep runs what is missing of a sweep: jobs that never started, were lost, interrupted or, with
// retry, failed. When the configuration is not what it was, the sweep is refused unless that is
// accepted; another space or sweeper is another sweep.
func resumeSweep(ctx context.Context, dir string, r resumption) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	f, err := claimSweep(dir)
	if err != nil {
		return err
	}
	defer f.Release()
	l, err := ledger.Open(dir)
	if err != nil {
		return err
	}
	defer l.Close()
	s, err := l.Sweep()
	if err != nil {
		return err
	}
	s.Overrides = append(s.Overrides, r.overrides...)
	p, err := reopen(dir, s)
	if err != nil {
		return err
	}
	jobs, err := l.Jobs()
	if err != nil {
		return err
	}
	again, err := p.again(&s, jobs, r)
	if err != nil {
		return err
	}
	if len(r.overrides) > 0 {
		if err := p.rejudge(jobs); err != nil {
			return err
		}
	}
	if err := l.SetSweep(s); err != nil {
		return err
	}
	if err := l.Update(jobs...); err != nil {
		return err
	}
	if len(again) > 0 || len(jobs) < s.Trials {
		if err := chooseProgram(dir, r.accept); err != nil {
			return err
		}
	}
	if r.detached {
		f.Release()
		return detach(ctx, dir)
	}
	if len(again) == 0 && len(jobs) >= s.Trials {
		stdout.Printf("%s: all %d jobs of this sweep have ended\n", dir, len(jobs))
	}
	return control(ctx, p, l, again, s.Generation)
}

// again plans the jobs that are to run, and brings s and the rows up to the configuration as it is now.
func (p *plan) again(s *ledger.Sweep, jobs []ledger.Job, r resumption) (map[int]launcher.Job, error) {
	now, err := p.sweep()
	if err != nil {
		return nil, err
	}
	if now.Sweeper != s.Sweeper || p.search != nil && !reflect.DeepEqual(now.Dimensions, s.Dimensions) {
		return nil, usage.Errorf("%s: what is swept has changed since the sweep was started (hydra/sweeper=%s over %s; now %s over %s): that is another sweep, give it another hydra.sweep.dir",
			p.dir, s.Sweeper, keysOf(s.Dimensions), now.Sweeper, keysOf(now.Dimensions))
	}
	if err := p.sameArms(*s); err != nil {
		return nil, err
	}
	var changed []int
	plans := map[int]planned{}
	for i := range jobs {
		job := &jobs[i]
		if job.State == launcher.Done || job.State == launcher.Pruned {
			if hasResult(p.dir, *job) {
				continue
			}
			fmt.Fprintf(os.Stderr, "warning: job %d was %s and its results are gone from %s: it runs again\n", job.Num, job.State, filepath.Join(p.dir, job.Dir))
			job.State, job.Attempts, job.Objectives, job.Metrics = launcher.Queued, 0, nil, nil
		}
		if job.State == launcher.Failed && !r.retry {
			continue
		}
		plan, err := p.compose(job.Num, job.Overrides, job.Dir, startOf(p.dir, p.study, *job, jobs)...)
		if err != nil && job.Attempts == 0 && job.State == launcher.Failed { // an invalid trial
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("job %d: %w", job.Num, err)
		}
		plans[i] = plan
		if plan.row.Fingerprint != job.Fingerprint {
			changed = append(changed, job.Num)
		}
	}
	search := now.Fingerprint != s.Fingerprint && p.search != nil && len(jobs) < now.Trials // trials are still to be composed
	if (len(changed) > 0 || search) && !r.accept {
		what := "trials to come"
		if len(changed) > 0 {
			what = jobNumbers(changed)
		}
		return nil, usage.Errorf("%s: the configuration has changed since the sweep was started (%s), for %s; to go on, with the new one for jobs that have not begun:  run resume %s %s", p.dir, p.changes(s.Generation), what, p.dir, acceptChanges)
	}
	if len(changed) > 0 || search {
		s.Generation++
		text, err := p.master.YAML("job", false, "")
		if err != nil {
			return nil, err
		}
		if err := atomicfile.Write(filepath.Join(p.dir, multirunName(s.Generation)), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	again := map[int]launcher.Job{}
	for i, plan := range plans {
		job := &jobs[i]
		job.Failures = 0
		if job.Fingerprint != plan.row.Fingerprint && !launcher.Begun(plan.start.Dir) { // one that has begun keeps its own
			job.Fingerprint, job.Generation = plan.row.Fingerprint, s.Generation
		}
		again[job.Num] = expecting(plan.start, job.Fingerprint)
	}
	s.Fingerprint, s.Launcher, s.Trials, s.Objectives, s.Constraints = now.Fingerprint, now.Launcher, now.Trials, now.Objectives, now.Constraints
	s.Study = now.Study // its questions may be others
	return again, nil
}

func keysOf(dims []configs.Dimension) string {
	var names []string
	for _, d := range dims {
		names = append(names, d.Key)
	}
	return strings.Join(names, ", ")
}

// hasResult reports whether the folder of a job that has ended well still says so.
func hasResult(dir string, job ledger.Job) bool {
	s, err := record.ReadSummary(filepath.Join(dir, job.Dir))
	return err != nil || s != nil && (s.State == record.StateDone || s.State == record.StatePruned) // an unreadable one is not gone
}

// rejudge reads the results of the jobs that have ended again: the objectives may be others now.
func (p *plan) rejudge(jobs []ledger.Job) error {
	for i := range jobs {
		if jobs[i].State == launcher.Done || jobs[i].State == launcher.Pruned {
			if err := p.result(&jobs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// jobNumbers lists jobs for a sentence.
func jobNumbers(nums []int) string {
	const most = 8
	var names []string
	for _, n := range nums {
		names = append(names, strconv.Itoa(n))
	}
	switch {
	case len(names) == 1:
		return "job " + names[0]
	case len(names) > most:
		return fmt.Sprintf("jobs %s … (%d jobs)", strings.Join(names[:most], ", "), len(names))
	}
	return "jobs " + strings.Join(names, ", ")
}

// multirunName is the file of the primary configuration of a generation.
func multirunName(generation int) string {
	if generation <= 1 {
		return multirunFile
	}
	return fmt.Sprintf("multirun.%d.yaml", generation)
}

// changes names the keys of the primary configuration that are not what they were in a generation, as far
// as its file tells.
func (p *plan) changes(generation int) string {
	const most = 5
	old, err := os.ReadFile(filepath.Join(p.dir, multirunName(generation)))
	if err != nil {
		return multirunName(generation) + " is gone"
	}
	text, err := p.master.YAML("job", false, "")
	if err != nil {
		return err.Error()
	}
	before, now := leaves(old), leaves([]byte(text))
	var keys []string
	for key, value := range now {
		if was, ok := before[key]; !ok {
			keys = append(keys, fmt.Sprintf("%s is new", key))
		} else if was != value {
			keys = append(keys, fmt.Sprintf("%s was %s and is %s", key, was, value))
		}
	}
	for key := range before {
		if _, ok := now[key]; !ok {
			keys = append(keys, key+" is gone")
		}
	}
	slices.Sort(keys)
	switch {
	case len(keys) == 0:
		if p.study != nil {
			return "in an option that the jobs choose, in what an interpolation reads, or because the study's folder was moved: where an arm starts is a path"
		}
		return "in an option that the jobs choose, or in what an interpolation reads, such as an environment variable"
	case len(keys) > most:
		keys = append(keys[:most], "…")
	}
	return strings.Join(keys, "; ")
}

// leaves flattens a YAML document: dotted keys and scalars.
func leaves(text []byte) map[string]string {
	var doc yaml.Node
	out := map[string]string{}
	if yaml.Unmarshal(text, &doc) != nil || len(doc.Content) == 0 {
		return out
	}
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1])
			}
		case yaml.SequenceNode:
			for i, item := range n.Content {
				walk(path+"."+strconv.Itoa(i), item)
			}
		default:
			out[path] = n.Value
		}
	}
	walk("", doc.Content[0])
	return out
}

// verbAttach follows a sweep that another process controls, until it ends; one that nobody controls it
// takes over.
func verbAttach(ctx context.Context, _ App, args []string) error {
	if err := want(args, 1, "attach SWEEP_FOLDER"); err != nil {
		return err
	}
	dir := args[0]
	if err := lostLedger(dir); err != nil {
		return err
	}
	if !ledger.Exists(dir) {
		return usage.Errorf("%s: no sweep here: %s is missing", dir, ledger.FileName)
	}
	if !runfolder.Locked(dir) {
		stdout.Println("nobody controls this sweep: this process takes over")
		return resumeSweep(ctx, dir, resumption{})
	}
	log := &follower{path: filepath.Join(dir, controllerLog), out: stdout.Writer(), states: map[int]string{}}
	for runfolder.Locked(dir) {
		if err := log.follow(dir); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			fmt.Fprintln(os.Stderr, "no longer following; the sweep goes on")
			return nil
		case <-time.After(300 * time.Millisecond):
		}
	}
	if err := log.follow(dir); err != nil {
		return err
	}
	return sweepOutcome(dir)
}

// follower prints what a detached controller appends to its log. One that runs in some terminal has none:
// then it prints the jobs' states as they change in the ledger.
type follower struct {
	path   string
	at     int64
	out    io.Writer
	states map[int]string // printed
}

func (f *follower) follow(dir string) error {
	file, err := os.Open(f.path)
	if os.IsNotExist(err) {
		return f.changes(dir)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(f.at, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(f.out, file)
	f.at += n
	return err
}

// changes prints the jobs whose states are not those that were printed last.
func (f *follower) changes(dir string) error {
	_, jobs, err := ledger.Load(dir)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if f.states[job.Num] == job.State || job.State == launcher.Queued {
			continue
		}
		f.states[job.Num] = job.State
		line := fmt.Sprintf("#%-4d %s", job.Num, job.State)
		for _, o := range job.Objectives {
			line += fmt.Sprintf("  %s %.4g", o.Name, float64(o.Value))
		}
		if job.Cause != "" {
			line += ": " + job.Cause
		}
		if _, err := fmt.Fprintf(f.out, "%s  %s\n", line, strings.Join(job.Overrides, " ")); err != nil {
			return err
		}
	}
	return nil
}

// lostLedger refuses a sweep's folder whose ledger is gone; nil for any other folder.
func lostLedger(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, multirunFile)); err != nil || ledger.Exists(dir) {
		return nil
	}
	return usage.Errorf("%s was a sweep, but its ledger %s is gone; the folders of its jobs are whole runs: run report %s, run resume %s", dir, ledger.FileName, filepath.Join(dir, "0"), filepath.Join(dir, "0"))
}

// sweepOutcome is the error that a sweep without a controller stands for.
func sweepOutcome(dir string) error {
	_, jobs, err := ledger.Load(dir)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, job := range jobs {
		counts[job.State]++
	}
	if bad := len(jobs) - counts[launcher.Done] - counts[launcher.Pruned]; bad > 0 {
		return fmt.Errorf("%d of %d jobs failed or are missing; go on with  run resume %s", bad, len(jobs), dir)
	}
	stdout.Printf("all %d jobs are done\nreport: %s\n", len(jobs), filepath.Join(dir, "report.md"))
	return nil
}

// background starts this program in a session of its own: no terminal's end reaches it.
func background(log *os.File, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

// detach leaves the sweep in dir to a process of its own and waits until that owns it.
func detach(ctx context.Context, dir string) error {
	log, err := os.OpenFile(filepath.Join(dir, controllerLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := background(log, "attach", dir)
	if err != nil {
		return err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	for deadline := time.After(time.Minute); ; {
		if runfolder.Locked(dir) {
			stdout.Printf("sweep → %s\nprocess %d controls it; follow: run attach %s   look: run status %s   stop: kill %d\n", dir, cmd.Process.Pid, dir, dir, cmd.Process.Pid)
			return nil
		}
		select {
		case err := <-gone: // a short sweep may have ended already
			text, _ := os.ReadFile(log.Name())
			stdout.Print(string(text))
			if err != nil {
				return fmt.Errorf("the detached sweep ended: %w (%s)", err, log.Name())
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return fmt.Errorf("the detached controller (process %d) does not take over: see %s", cmd.Process.Pid, log.Name())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// status prints the jobs of a sweep, or the standing of one run.
func status(dir string) error {
	if err := lostLedger(dir); err != nil {
		return err
	}
	if !ledger.Exists(dir) {
		if !runfolder.IsRun(dir) {
			return usage.Errorf("%s: neither a run folder nor a sweep folder", dir)
		}
		stdout.Println(runStatus(dir))
		return nil
	}
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return err
	}
	for i := range jobs {
		observe(dir, &jobs[i])
	}
	controlled := "nobody controls it (go on: run resume " + dir + ")"
	if runfolder.Locked(dir) {
		controlled = "its controller is running (follow: run attach " + dir + ")"
	} else if n := countEnded(jobs); n > 0 && n == len(jobs) && n >= s.Trials {
		controlled = "ended"
	} else if s.Trials > 0 {
		controlled = fmt.Sprintf("%d of %d trials, ", n, s.Trials) + controlled
	}
	stdout.Printf("%s: started %s, hydra/sweeper=%s, hydra/launcher=%s: %s\n", dir, s.Created.Local().Format("2006-01-02 15:04"), s.Sweeper, s.Launcher, controlled)
	opt, rows := sweepReportInput(dir, s, jobs)
	stdout.Print(sweepreport.SweepTable(rows, opt))
	for _, job := range jobs {
		switch job.State {
		case launcher.Running:
			stdout.Printf("job %d: %s\n", job.Num, runStatus(filepath.Join(dir, job.Dir)))
		case launcher.Failed, launcher.Lost, launcher.Skipped:
			stdout.Printf("job %d %s: %s\n", job.Num, job.State, job.Cause)
		case launcher.Queued:
			if text := waiting(job, jobs); text != "" {
				stdout.Printf("job %d %s\n", job.Num, text)
			}
		}
	}
	return nil
}

func countEnded(jobs []ledger.Job) int {
	n := 0
	for _, job := range jobs {
		if launcher.Ended(job.State) {
			n++
		}
	}
	return n
}

// observe brings a row up to what the job's folder says: its controller may be gone.
func observe(dir string, job *ledger.Job) {
	at := filepath.Join(dir, job.Dir)
	if launcher.Ended(job.State) {
		if job.State != launcher.Failed && job.State != launcher.Skipped && !hasResult(dir, *job) {
			job.State, job.Cause = launcher.Lost, "its results are gone from "+at+"; run resume "+dir+" makes them again"
		}
		return
	}
	attempts, err := launcher.Attempts(at)
	if err != nil || len(attempts) == 0 {
		return
	}
	last := attempts[len(attempts)-1]
	if last.Try < job.Attempts {
		return
	}
	job.State, job.Attempts, job.Cause = last.State, last.Try, last.Cause
	switch {
	case last.State == launcher.Interrupted:
		job.State = launcher.Queued
	case last.State == launcher.Running && !launcher.Supervised(at):
		job.State, job.Cause = launcher.Lost, "its process is gone; run resume "+dir+" goes on with it"
	}
}

// runStatus says in a few words how far a run is: from its summary and its lock.
func runStatus(dir string) string {
	at := ""
	if rows, err := record.ReadRun(dir); err == nil && len(rows.Epochs) > 0 {
		last := rows.Epochs[len(rows.Epochs)-1]
		at = fmt.Sprintf(" after %s epoch %d", last.Phase, last.Epoch)
	}
	if runfolder.Locked(dir) {
		return "running" + at
	}
	s, err := record.ReadSummary(dir)
	switch {
	case err != nil || s == nil:
		return "killed" + at + " (run resume " + dir + ")"
	case s.State == record.StateDone, s.State == record.StatePruned:
		return s.State
	}
	return s.State + at + " (run resume " + dir + ")"
}

// writeSweepReport writes report.md and, of a sweep that searched, optimization_results.yaml.
func writeSweepReport(dir string) error {
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return err
	}
	opt, rows := sweepReportInput(dir, s, jobs)
	if s.Sweeper != sweeper.Basic && s.Sweeper != sweeper.Study {
		if err := sweepreport.WriteOptimizationResults(dir, rows, opt); err != nil {
			return err
		}
	}
	return sweepreport.WriteSweepReport(dir, rows, opt)
}

// generationKey stands in reports for the configuration files that a job was composed from: 1, and one
// more for each change that was accepted (multirun.2.yaml, …).
const generationKey = "configuration"

// sweepReportInput is the sweep as reports want it.
func sweepReportInput(dir string, s ledger.Sweep, jobs []ledger.Job) (sweepreport.SweepOptions, []sweepreport.SweepJob) {
	opt := sweepreport.SweepOptions{
		Title: fmt.Sprintf("Sweep of %d jobs", len(jobs)), Command: s.Command, Sweeper: s.Sweeper, Launcher: s.Launcher,
		Pruner: s.Pruner, Constraints: s.Constraints,
	}
	for _, d := range s.Dimensions {
		opt.Dimensions = append(opt.Dimensions, sweepreport.SweepDimension{Key: d.Key, Log: d.Log(), Interval: d.Interval(), Values: d.Choices})
	}
	for _, o := range s.Objectives {
		opt.Objectives = append(opt.Objectives, sweepreport.SweepObjective{Name: o.Name, Minimize: o.Minimize})
	}
	if s.Study != nil {
		arms := sweepreport.SweepDimension{Key: sweepreport.ArmKey}
		for _, arm := range s.Study.Arms {
			arms.Values = append(arms.Values, arm.Name)
		}
		opt.Dimensions, opt.Study = slices.Insert(opt.Dimensions, 0, arms), s.Study
		opt.Title = fmt.Sprintf("Study of %d arms", len(s.Study.Arms))
	}
	named := len(opt.Objectives) > 0
	if s.Generation > 1 { // jobs of several configurations are no repetitions of each other
		opt.Dimensions = append(opt.Dimensions, sweepreport.SweepDimension{Key: generationKey})
		for g := 1; g <= s.Generation; g++ {
			last := &opt.Dimensions[len(opt.Dimensions)-1]
			last.Values = append(last.Values, strconv.Itoa(g))
		}
		opt.Title += fmt.Sprintf(", with %d configurations", s.Generation)
	}
	rows := make([]sweepreport.SweepJob, len(jobs))
	for i, j := range jobs {
		rows[i] = sweepreport.SweepJob{
			Number: j.Num, Dir: filepath.Join(dir, j.Dir), Overrides: shownOverrides(s.Study, j), State: j.State, Params: map[string]string{},
			Violation: j.Violation, Epochs: j.Epochs, Seconds: j.Seconds, Attempts: j.Attempts, Cause: j.Cause, Tail: j.Tail,
			Command: slices.Concat([]string{"run"}, s.Flags, j.Overrides),
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
				opt.Objectives = append(opt.Objectives, sweepreport.SweepObjective{Name: o.Name, Minimize: o.Minimize})
			}
		}
	}
	return opt, rows
}
