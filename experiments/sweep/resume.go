package sweep

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"fulcrum/configs"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
)

// AcceptChanges is the flag that lets a sweep go on with configuration files and a program that have changed.
const AcceptChanges = "--accept-changes"

// Resumption says how a sweep is to go on.
type Resumption struct {
	Accept    bool     // a configuration that has changed
	Retry     bool     // jobs that have failed
	Detached  bool     // in a process of its own
	Overrides []string // of what may change in a sweep
}

// mayChange are the keys of the hydra node that a sweep may go on with other values of. Everything else
// decides what its jobs compute, or which they are.
var mayChange = []string{
	"hydra/launcher", "hydra.launcher", "hydra.sweeper.n_trials", "hydra.sweeper.n_jobs", "hydra.sweeper.on_failure",
	"hydra.sweeper.max_failure_rate", "hydra.sweeper.max_batch_size", "hydra.sweeper.objective", "hydra.sweeper.direction",
	"hydra.sweeper.constraints",
}

// Resume runs what is missing of a sweep: jobs that never started, were lost, interrupted or, with
// retry, failed. When the configuration is not what it was, the sweep is refused unless that is
// accepted; another space or sweeper is another sweep.
func Resume(ctx context.Context, runs Runs, dir string, r Resumption) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for _, o := range r.Overrides {
		key, _, _ := strings.Cut(strings.TrimLeft(o, "+~"), "=")
		if !slices.ContainsFunc(mayChange, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") }) {
			return usage.Errorf("%s: a sweep goes on with its own configuration; only these may change: %s", o, strings.Join(mayChange, ", "))
		}
	}
	f, err := claimSweep(dir)
	if err != nil {
		return err
	}
	defer f.Release()
	if !ledger.Exists(dir) {
		return beginAgain(ctx, runs, f, r)
	}
	if err := os.RemoveAll(filepath.Join(dir, planFile)); err != nil { // of a controller that was killed when it had the ledger
		return err
	}
	l, err := ledger.Open(dir)
	if err != nil {
		return err
	}
	defer l.Close()
	s := l.Sweep()
	s.Overrides = append(s.Overrides, r.Overrides...)
	p, err := reopen(runs, dir, s)
	if err != nil {
		return err
	}
	if err := sweeper.RefuseIdle(p.sweeper, r.Overrides); err != nil {
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
	for i := range jobs {
		if len(r.Overrides) > 0 && (jobs[i].State == launcher.Done || jobs[i].State == launcher.Pruned) { // the objectives may be others now
			if err := result(p.dir, p.goals, &jobs[i]); err != nil {
				return err
			}
		}
	}
	defer interrupt.Hold(nil).Release()
	if err := l.SetSweep(s); err != nil {
		return err
	}
	if err := l.Update(jobs...); err != nil {
		return err
	}
	if len(again) > 0 || len(jobs) < s.Trials {
		if err := chooseProgram(dir, r.Accept); err != nil {
			return err
		}
	}
	if r.Detached {
		f.Release()
		return detach(ctx, dir)
	}
	if len(again) == 0 && len(jobs) >= s.Trials {
		stdout.Printf("%s: all %d jobs of this sweep have ended\n", dir, len(jobs))
	}
	return control(ctx, p, l, again, s.Generation)
}

// beginAgain plans a sweep that was killed before it had a ledger, as it was asked for then: no job of it has begun.
func beginAgain(ctx context.Context, runs Runs, f *runfolder.Folder, r Resumption) error {
	text, err := regular.ReadFile(filepath.Join(f.Dir, planFile))
	if err != nil {
		return err
	}
	var asked ledger.Sweep
	if err := jsonwords.Unmarshal(text, &asked); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(f.Dir, planFile), err)
	}
	asked.Overrides = append(asked.Overrides, r.Overrides...)
	p, err := reopen(runs, f.Dir, asked)
	if err != nil {
		return err
	}
	if err := p.unused(); err != nil {
		return err
	}
	jobs, err := p.jobs()
	if err != nil {
		return err
	}
	defer interrupt.Hold(nil).Release()
	return p.begin(ctx, f, jobs, &asked, r.Detached)
}

// again plans the jobs that are to run, and brings s and the rows up to the configuration as it is now.
func (p *plan) again(s *ledger.Sweep, jobs []ledger.Job, r Resumption) (map[int]launcher.Job, error) {
	now, err := p.sweep()
	if err != nil {
		return nil, err
	}
	if now.Sweeper != s.Sweeper || p.search != nil && !reflect.DeepEqual(now.Dimensions, s.Dimensions) {
		return nil, usage.Errorf("%s: the swept keys have changed since the start of the sweep (hydra/sweeper=%s over %s; now %s "+
			"over %s): a sweep over other keys needs another hydra.sweep.dir",
			p.dir, s.Sweeper, keysOf(s.Dimensions), now.Sweeper, keysOf(now.Dimensions))
	}
	if p.study != nil && !reflect.DeepEqual(p.study.Arms, s.Study.Arms) {
		return nil, usage.Errorf("%s: the arms of this study have changed since it was started: that is another study, give it another "+
			"hydra.sweep.dir", p.dir)
	}
	plans, changed, err := p.missing(jobs, r.Retry)
	if err != nil {
		return nil, err
	}
	search := now.Fingerprint != s.Fingerprint && p.search != nil && len(jobs) < now.Trials // trials are still to be composed
	if (len(changed) > 0 || search) && !r.Accept {
		what := "trials to come"
		if len(changed) > 0 {
			what = jobNumbers(changed)
		}
		return nil, usage.Errorf("%s: the configuration has changed since the sweep was started (%s), for %s; to go on, with the "+
			"new one for jobs that have not begun: %s", p.dir, p.changes(s.Generation), what, program.OnFolder("resume", p.dir, AcceptChanges))
	}
	if len(changed) > 0 || search {
		s.Generation++
		text, err := p.master.YAML("job", false, "")
		if err != nil {
			return nil, err
		}
		if err := atomicfile.Write(filepath.Join(p.dir, MultirunName(s.Generation)), []byte(text), 0o644); err != nil {
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
	s.Fingerprint, s.Launcher, s.Trials = now.Fingerprint, now.Launcher, now.Trials
	s.Objectives, s.Constraints = now.Objectives, now.Constraints
	s.Study = now.Study // its questions may be others
	return again, nil
}

// missing plans the jobs without a result, by their place in jobs, the failed ones with retry, and names those whose
// configuration has changed. A job that has lost its result is queued as new.
func (p *plan) missing(jobs []ledger.Job, retry bool) (plans map[int]planned, changed []int, err error) {
	plans = map[int]planned{}
	for i := range jobs {
		job := &jobs[i]
		if job.State == launcher.Done || job.State == launcher.Pruned {
			if hasResult(p.dir, *job) {
				continue
			}
			stdout.Message(stdout.Errors(), fmt.Sprintf("warning: job %d was %s and its results are gone from %s: it runs again", job.Num, job.State,
				filepath.Join(p.dir, job.Dir)))
			job.State, job.Attempts, job.Objectives, job.Metrics = launcher.Queued, 0, nil, nil
		}
		if job.State == launcher.Failed && !retry {
			continue
		}
		plan, err := p.compose(job.Num, job.Overrides, job.Dir, startOf(p.dir, p.study, *job, jobs)...)
		if err != nil && job.Attempts == 0 && job.State == launcher.Failed { // an invalid trial
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("job %d: %w", job.Num, err)
		}
		plans[i] = plan
		if plan.row.Fingerprint != job.Fingerprint {
			changed = append(changed, job.Num)
		}
	}
	return plans, changed, nil
}

func keysOf(dims []configs.Dimension) string {
	return strings.Join(list.Map(dims, func(d configs.Dimension) string { return d.Key }), ", ")
}

// hasResult reports whether the folder of a job that has ended well still says so.
func hasResult(dir string, job ledger.Job) bool {
	s, err := record.ReadSummary(filepath.Join(dir, job.Dir))
	return err != nil || s.Over() // an unreadable one is not gone
}

// jobNumbers lists jobs for a sentence.
func jobNumbers(nums []int) string {
	const most = 8
	names := list.Map(nums, strconv.Itoa)
	switch {
	case len(names) == 1:
		return "job " + names[0]
	case len(names) > most:
		return fmt.Sprintf("jobs %s … (%d jobs)", strings.Join(names[:most], ", "), len(names))
	}
	return "jobs " + strings.Join(names, ", ")
}

// MultirunName returns the file of the primary configuration of a generation.
func MultirunName(generation int) string {
	if generation <= 1 {
		return multirunFile
	}
	return fmt.Sprintf("multirun.%d.yaml", generation)
}

// changes names the keys of the primary configuration that are not what they were in a generation, as far
// as its file tells.
func (p *plan) changes(generation int) string {
	const most = 5
	old, err := regular.ReadDocument(filepath.Join(p.dir, MultirunName(generation)))
	if err != nil {
		return MultirunName(generation) + " is gone"
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
			return "in an option that the jobs choose, in what an interpolation reads, or because the study's folder was moved: " +
				"where an arm starts is a path"
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
