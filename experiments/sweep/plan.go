package sweep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/build"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/secret"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/sweeps"
)

// plan is what a sweep's configuration says: options, space, launcher.
type plan struct {
	runs     Runs
	req      configs.Request
	composer *configs.Composer
	master   *configs.Composed // the primary configuration, without what the jobs set
	hydra    *configs.HydraValues
	sweeper  string // its name, behind aliases
	options  sweeper.Options
	goals    sweeper.Goals
	dims     []configs.Dimension // what is swept
	fixed    []string            // overrides that every job of an optimizing sweeper has
	search   sweeper.Sweeper     // nil: the jobs are known from the start
	study    *sweeps.Study       // nil: the sweep has no arms
	open     launcher.Open
	dir, cwd string // absolute

	processes int // that the launcher starts for each job; 0: what the job says

	folders map[string]int    // jobs by their folder
	starts  map[string]bool   // checkpoints to start from that are there
	idle    []configs.Setting // of the user's that no job composed so far reads
	unread  []configs.Setting // of the section vars, likewise; nil before the first job
}

// newPlan composes the primary configuration of a sweep and reads what its hydra node says.
func newPlan(runs Runs, req configs.Request) (*plan, error) {
	composer, err := configs.NewComposer(req)
	if err != nil {
		return nil, err
	}
	master, err := composer.Compose()
	if err != nil {
		return nil, err
	}
	p, err := planSweep(runs, req, composer, master)
	if err != nil {
		return nil, err
	}
	if err := master.Secrets(); err != nil {
		return nil, err
	}
	p.open, err = launcher.Prepare(launcher.Request{
		Name: p.hydra.Launcher, Sweep: p.dir, Cwd: p.cwd, Slurm: runs.Annexes().Slurm,
		Options: func(dst any) error {
			err := master.DecodeHydra("launcher", dst)
			if o, ok := dst.(interface{ Processes() int }); ok {
				p.processes = o.Processes()
			}
			return err
		},
	})
	return p, err
}

// planSweep plans without a launcher: enough to say which jobs there are.
func planSweep(runs Runs, req configs.Request, composer *configs.Composer, master *configs.Composed) (*plan, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	p := &plan{runs: runs, req: req, composer: composer, master: master, cwd: cwd, folders: map[string]int{}, starts: map[string]bool{},
		idle: append(master.Typed(req.Overrides), master.Own()...)}
	if p.hydra, err = master.Hydra(); err != nil {
		return nil, err
	}
	if p.hydra.SweepDir == "" {
		return nil, usage.Errorf("hydra.sweep.dir is empty: want a folder, as in hydra.sweep.dir=multirun/mine; left out, it is " +
			"multirun/DATE/TIME")
	}
	if p.dir, err = filepath.Abs(p.hydra.SweepDir); err != nil {
		return nil, err
	}
	p.sweeper, p.options, err = sweeper.Resolve(p.hydra.Sweeper, master.Choice("hydra/sweeper/sampler"),
		func(dst any) error { return master.DecodeHydra("sweeper", dst) })
	if err != nil {
		return nil, configuration(err)
	}
	if p.goals, err = p.options.Goals(); err != nil {
		return nil, err
	}
	if p.dims, p.fixed, err = composer.Space(master); err != nil {
		return nil, err
	}
	if p.options.Pruner.Active() && runs.Annexes().Search == nil { // and not by each job
		return nil, sweeper.Missing("hydra.sweeper.pruner.name=" + p.options.Pruner.Name)
	}
	switch p.sweeper {
	case sweeper.Basic:
	case sweeper.Study:
		arms := master.Tree().Find("hydra.sweeper.arms") // which fits has found to be there
		p.study = p.options.StudyOf(list.Map(arms.Keys, func(k configs.Key) string { return k.Text }))
	default:
		search := runs.Annexes().Search
		if search == nil {
			return nil, sweeper.Missing("hydra/sweeper=" + p.sweeper)
		}
		if p.search, err = search(p.sweeper, p.options, p.dims); err != nil {
			return nil, configuration(err)
		}
	}
	p.goals.Optional = p.search == nil
	return p, nil
}

// configuration makes an error one of usage, unless it is one of configuration already.
func configuration(err error) error {
	var one *configs.Error
	var many configs.Errors
	if errors.As(err, &one) || errors.As(err, &many) {
		return err
	}
	return usage.Errorf("%v", err)
}

// sweep is what the ledger keeps of the plan.
func (p *plan) sweep() (ledger.Sweep, error) {
	hash, err := runfolder.Fingerprint(p.master)
	if err != nil {
		return ledger.Sweep{}, err
	}
	s := ledger.Sweep{
		Command: append([]string{program.Called(), "-m"}, slices.Concat(flags(p.req), p.req.Overrides)...),
		Flags:   flags(p.req), Overrides: p.req.Overrides, Cwd: p.cwd, Sweeper: p.sweeper, Launcher: p.hydra.Launcher,
		Created: p.req.Now, Program: build.Version, Pruner: p.options.Pruner.Name, Constraints: p.options.Constraints, Dimensions: p.dims,
		Fingerprint: hash, Generation: 1, Study: p.study,
	}
	if p.search != nil {
		s.Trials = p.options.NTrials
	}
	for _, o := range p.goals.Objectives {
		if o.Name != "" {
			s.Objectives = append(s.Objectives, sweeps.Objective{Name: o.Name, Minimize: o.Minimizes(false)})
		}
	}
	return s, nil
}

// flags repeats the request's config search flags.
func flags(r configs.Request) []string {
	var out []string
	for _, f := range []struct{ name, value string }{{"--config-path", r.ConfigPath}, {"--config-name", r.ConfigName},
		{"--config-dir", r.ConfigDir}} {
		if f.value != "" {
			out = append(out, f.name+"="+f.value)
		}
	}
	return out
}

// planned is a job as the ledger and the launcher see it.
type planned struct {
	row   ledger.Job
	start launcher.Job
}

// jobs composes and checks the jobs that are known from the start: a grid's all, an optimizing
// sweeper's none, but the corners of its space are checked.
func (p *plan) jobs() ([]planned, error) {
	if p.search != nil {
		return nil, p.checkSpace()
	}
	lists, err := p.composer.Jobs(p.master)
	if err != nil {
		return nil, err
	}
	if p.study != nil {
		return p.studyJobs(lists)
	}
	jobs := make([]planned, len(lists))
	for i, overrides := range lists {
		if jobs[i], err = p.compose(i, overrides, ""); err != nil {
			return nil, err
		}
		if err := p.claimFolder(jobs[:i], jobs[i].row); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// claimFolder notes the folder of a job and refuses one that another of the jobs has.
func (p *plan) claimFolder(jobs []planned, row ledger.Job) error {
	if first, taken := p.folders[row.Dir]; taken {
		return usage.Errorf("jobs %d (%s) and %d (%s) would share the folder %s: let hydra.sweep.subdir tell them apart, as in ${hydra.job.num}",
			first, strings.Join(jobs[first].row.Overrides, " "), row.Num, strings.Join(row.Overrides, " "), row.Dir)
	}
	p.folders[row.Dir] = row.Num
	return nil
}

// checkSpace composes the corners of a search's space. A bound or a choice that its own key refuses is an
// error; one that is invalid only beside the values of other keys will be a failed trial.
func (p *plan) checkSpace() error {
	var invalid error
	valid := false
	for _, point := range corners(p.dims) {
		alone := p.req // as a primary configuration, of which only the types are checked
		alone.Overrides = append(p.master.HydraOverrides(), p.overrides(point)...)
		if _, err := configs.Compose(alone); err != nil {
			return err
		}
		if _, err := p.compose(0, p.overrides(point), ""); err != nil {
			invalid = err
			continue
		}
		valid = true
	}
	if invalid != nil && valid {
		stdout.Message(stdout.Errors(), fmt.Sprintf("warning: some points of the space are invalid, and their trials will fail: %v", invalid))
		return nil
	}
	return invalid
}

// overrides returns the overrides of a trial.
func (p *plan) overrides(params []string) []string {
	out := slices.Clone(p.fixed)
	for i, d := range p.dims {
		out = append(out, d.Key+"="+params[i])
	}
	return out
}

// corners returns points of a space that together hold every bound and every choice.
func corners(dims []configs.Dimension) [][]string {
	most := 2
	for _, d := range dims {
		most = max(most, len(d.Choices))
	}
	return list.Make(most, func(i int) []string {
		return list.Map(dims, func(d configs.Dimension) string { return corner(d, i) })
	})
}

// corner returns the i-th of a dimension's choices, or one of its bounds.
func corner(d configs.Dimension, i int) string {
	if !d.Interval() {
		return d.Choices[i%len(d.Choices)]
	}
	bound := d.Low
	if i%2 == 1 {
		bound = d.High
	}
	if d.Int {
		return strconv.Itoa(int(bound))
	}
	return strconv.FormatFloat(bound, 'g', -1, 64)
}

// compose composes and checks one job. folder is its run folder below the sweep's; "" = as configured. start are
// overrides that the sweep itself gives the job, beside those that tell it from others.
func (p *plan) compose(num int, overrides []string, folder string, start ...string) (planned, error) {
	var out planned
	own := overrides
	overrides = slices.Concat(overrides, start)
	c, err := p.composer.Job(p.master, num, overrides)
	if err != nil {
		return out, err
	}
	if err := c.Secrets(); err != nil {
		return out, fmt.Errorf("job %d: %w", num, err)
	}
	if !c.Complete() { // the schema has checked the rest
		err := p.runs.Check(c)
		return out, fmt.Errorf("job %d (%s): %w", num, strings.Join(overrides, " "), err)
	}
	if shards, _ := c.Value("parallel.shards").(int); p.processes > max(shards, 1) {
		return out, usage.Errorf("job %d: parallel.shards: %d processes of hydra/launcher=%s (nodes × tasks_per_node) want as many shards of "+
			"a step: parallel.shards=%d, which changes what the run computes, within rounding", num, p.processes, p.hydra.Launcher, p.processes)
	}
	p.idle = c.Idle(p.idle)
	p.unread = append([]configs.Setting{}, slices.DeleteFunc(c.Unread(), func(s configs.Setting) bool {
		return p.unread != nil && !slices.ContainsFunc(p.unread, func(t configs.Setting) bool { return s.Key == t.Key })
	})...)
	h, err := c.Hydra()
	if err != nil {
		return out, err
	}
	sub := filepath.Clean(h.SweepSubdir)
	if h.SweepSubdir == "" || sub == "." || strings.HasPrefix(sub, "..") || filepath.IsAbs(sub) {
		return out, usage.Errorf("hydra.sweep.subdir=%s: want a folder below hydra.sweep.dir for each job, as in ${hydra.job.num}", h.SweepSubdir)
	}
	if from, _ := c.Value("init.checkpoint").(string); from != "" && folder == "" && len(start) == 0 && !h.Chdir && !p.starts[from] {
		if err := p.runs.Check(c); err != nil { // once, not in each job that would fail by it
			return out, usage.Errorf("%v", err)
		}
		p.starts[from] = true
	}
	if folder != "" {
		sub = folder
	} else if _, taken := p.folders[sub]; taken && p.search != nil { // trials may differ in what the name does not show
		sub += fmt.Sprintf("_%d", num)
	}
	hash, err := runfolder.Fingerprint(c)
	if err != nil {
		return out, err
	}
	out.row = ledger.Job{Num: num, Overrides: own, Params: p.params(own), Dir: sub, Fingerprint: hash, State: launcher.Queued}
	dir := filepath.Join(p.dir, sub)
	args := slices.Concat(flags(p.req), overrides, p.master.HydraOverrides())
	args = append(args, "hydra.mode=RUN", "hydra.run.dir="+configs.Quote(dir), "hydra.sweep.dir="+configs.Quote(p.dir),
		"hydra.sweep.subdir="+configs.Quote(sub), fmt.Sprintf("hydra.job.num=%d", num))
	// A job is written to disk. It takes its secrets from its own environment, as hydra.job.env_set says.
	env := slices.DeleteFunc(h.Env, func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return secret.Named(name)
	})
	threads, _ := c.Value("threads").(int)
	processes, _ := c.Value("parallel.processes").(int)
	device, _ := c.Value("device").(string)
	out.start = launcher.Job{Num: num, Sweep: p.dir, Dir: dir, Args: args, Cwd: p.cwd, Env: env, Threads: max(threads, 1) * max(processes, 1)}
	if device == "cuda" || device == "auto" {
		out.start.GPUs = max(processes, 1)
	}
	return out, nil
}

// params returns the values of the swept keys among a job's overrides.
func (p *plan) params(overrides []string) []string {
	out := make([]string, len(p.dims))
	for i, d := range p.dims {
		for _, o := range overrides {
			if value, ok := strings.CutPrefix(o, d.Key+"="); ok {
				out[i] = value
			}
		}
	}
	return out
}

// expecting gives a job the fingerprint that its configuration must have.
func expecting(j launcher.Job, fingerprint string) launcher.Job {
	j.Env = append(slices.Clone(j.Env), runfolder.ExpectedHash+"="+fingerprint)
	return j
}

// invalid returns the row of a trial whose configuration is refused: its sweeper learns that it failed.
func (p *plan) invalid(num int, overrides []string, err error) ledger.Job {
	dir := strconv.Itoa(num)
	for _, taken := p.folders[dir]; taken; _, taken = p.folders[dir] {
		dir = "_" + dir
	}
	return ledger.Job{Num: num, Overrides: overrides, Params: p.params(overrides), Dir: dir, State: launcher.Failed, Cause: err.Error()}
}

// points returns how many different trials a search can make; 0 = endlessly many.
func (p *plan) points() int {
	n := 1
	for _, d := range p.dims {
		values := len(d.Choices)
		if d.Interval() {
			if !d.Int || d.High-d.Low >= float64(p.options.NTrials) {
				return 0
			}
			values = int(d.High) - int(d.Low) + 1
		}
		if n *= values; n > p.options.NTrials {
			return 0
		}
	}
	return n
}
