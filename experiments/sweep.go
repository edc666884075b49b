package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/launcher"
	"fulcrum/experiments/ledger"
	"fulcrum/experiments/sweeper"
	"fulcrum/internal/atomicfile"
)

// multirunFile is the sweep's composed primary configuration, as Hydra writes it.
const multirunFile = "multirun.yaml"

// Sweep runs a multirun: it composes and checks every job, makes the sweep's folder and ledger, and
// hands over to the controller, detached to one in a process of its own. Nothing is written before
// everything is known to be right.
func (a App) Sweep(ctx context.Context, req configs.Request, detached bool) error {
	p, err := newPlan(req)
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
	f, err := claimSweep(p.dir)
	if err != nil {
		return err
	}
	defer f.release()
	if err := p.unused(); err != nil { // another controller may have come first
		return err
	}
	text, err := p.master.YAML("job", false, "")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(p.dir, multirunFile), []byte(text), 0o644); err != nil {
		return err
	}
	rows := make([]ledger.Job, len(jobs))
	starts := map[int]launcher.Job{}
	for i, j := range jobs {
		rows[i], starts[j.row.Num] = j.row, j.start
	}
	l, err := ledger.Create(p.dir, p.sweep(), rows) // from here on a killed sweep can be resumed
	if err != nil {
		return err
	}
	defer l.Close()
	if detached {
		f.release()
		return detach(ctx, p.dir)
	}
	return control(ctx, p, l, starts)
}

// plan is a sweep before and beside its ledger: what its configuration makes of it.
type plan struct {
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
	open     func(dir string) (launcher.Launcher, error)
	dir, cwd string // absolute
}

// newPlan composes the primary configuration of a sweep and reads what its hydra node says.
func newPlan(req configs.Request) (*plan, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	composer, err := configs.NewComposer(req)
	if err != nil {
		return nil, err
	}
	master, err := composer.Compose()
	if err != nil {
		return nil, err
	}
	p := &plan{req: req, composer: composer, master: master, cwd: cwd}
	if p.hydra, err = master.Hydra(); err != nil {
		return nil, err
	}
	if p.dir, err = filepath.Abs(p.hydra.SweepDir); err != nil {
		return nil, err
	}
	p.sweeper, p.options, err = sweeper.Resolve(p.hydra.Sweeper, master.Choice("hydra/sweeper/sampler"), func(dst any) error { return master.DecodeHydra("sweeper", dst) })
	if err != nil {
		return nil, configuration(err)
	}
	if p.goals, err = p.options.Goals(); err != nil {
		return nil, err
	}
	makeLauncher, err := Launchers().Get(p.hydra.Launcher)
	if err != nil {
		return nil, usagef("hydra/launcher: %v", err)
	}
	if p.open, err = makeLauncher(p); err != nil {
		return nil, err
	}
	if p.dims, p.fixed, err = composer.Space(master); err != nil {
		return nil, err
	}
	if p.sweeper != sweeper.Basic {
		if p.search, err = sweeper.New(p.sweeper, p.options, p.dims); err != nil {
			return nil, configuration(err)
		}
	}
	return p, nil
}

// configuration makes an error one of usage, unless it is one of configuration already.
func configuration(err error) error {
	var one *configs.Error
	var many configs.Errors
	if errors.As(err, &one) || errors.As(err, &many) {
		return err
	}
	return &UsageError{err.Error()}
}

// sweep is what the ledger keeps of the plan.
func (p *plan) sweep() ledger.Sweep {
	return ledger.Sweep{
		Command: append([]string{"run", "-m"}, slices.Concat(flags(p.req), p.req.Overrides)...),
		Flags:   flags(p.req), Overrides: p.req.Overrides, Cwd: p.cwd, Sweeper: p.hydra.Sweeper, Launcher: p.hydra.Launcher,
		Created: p.req.Now, Program: Version, Pruner: p.options.Pruner.Name, Constraints: p.options.Constraints, Dimensions: p.dims,
	}
}

// flags repeats the request's config search flags.
func flags(r configs.Request) []string {
	var out []string
	for _, f := range []struct{ name, value string }{{"--config-path", r.ConfigPath}, {"--config-name", r.ConfigName}, {"--config-dir", r.ConfigDir}} {
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
		for _, corner := range corners(p.dims) {
			if _, err := p.compose(0, p.overrides(corner)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	lists, err := p.composer.Jobs(p.master)
	if err != nil {
		return nil, err
	}
	jobs := make([]planned, len(lists))
	folders := map[string]int{}
	for i, overrides := range lists {
		if jobs[i], err = p.compose(i, overrides); err != nil {
			return nil, err
		}
		dir := jobs[i].row.Dir
		if first, taken := folders[dir]; taken {
			return nil, usagef("jobs %d (%s) and %d (%s) would share the folder %s: let hydra.sweep.subdir tell them apart, as in ${hydra.job.num}",
				first, strings.Join(lists[first], " "), i, strings.Join(overrides, " "), dir)
		}
		folders[dir] = i
	}
	return jobs, nil
}

// overrides are those of a trial.
func (p *plan) overrides(params []string) []string {
	out := slices.Clone(p.fixed)
	for i, d := range p.dims {
		out = append(out, d.Key+"="+params[i])
	}
	return out
}

// corners are points of a space that together hold every bound and every choice.
func corners(dims []configs.Dimension) [][]string {
	most := 2
	for _, d := range dims {
		most = max(most, len(d.Choices))
	}
	points := make([][]string, most)
	for i := range points {
		for _, d := range dims {
			points[i] = append(points[i], corner(d, i))
		}
	}
	return points
}

// corner is the i-th of a dimension's choices, or one of its bounds.
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

// compose composes and checks one job.
func (p *plan) compose(num int, overrides []string) (planned, error) {
	var out planned
	c, err := p.composer.Job(p.master, num, overrides)
	if err != nil {
		return out, err
	}
	if !c.Complete() { // the schema has checked the rest
		_, err := decode(c)
		return out, fmt.Errorf("job %d (%s): %w", num, strings.Join(overrides, " "), err)
	}
	h, err := c.Hydra()
	if err != nil {
		return out, err
	}
	sub := filepath.Clean(h.SweepSubdir)
	if h.SweepSubdir == "" || sub == "." || strings.HasPrefix(sub, "..") || filepath.IsAbs(sub) {
		return out, usagef("hydra.sweep.subdir=%s: want a folder below hydra.sweep.dir for each job, as in ${hydra.job.num}", h.SweepSubdir)
	}
	hash, err := c.Fingerprint(hashExcluded...)
	if err != nil {
		return out, err
	}
	out.row = ledger.Job{Num: num, Overrides: overrides, Params: p.params(overrides), Dir: sub, Fingerprint: hash, State: launcher.Queued}
	dir := filepath.Join(p.dir, sub)
	args := slices.Concat(flags(p.req), overrides, p.master.HydraOverrides())
	args = append(args, "hydra.mode=RUN", "hydra.run.dir="+quoted(dir), "hydra.sweep.dir="+quoted(p.dir), "hydra.sweep.subdir="+quoted(sub), fmt.Sprintf("hydra.job.num=%d", num))
	threads, _ := c.Value("threads").(int)
	device, _ := c.Value("device").(string)
	out.start = launcher.Job{
		Num: num, Sweep: p.dir, Dir: dir, Args: args, Cwd: p.cwd, Env: append(h.Env(), expectedHash+"="+hash),
		Threads: max(threads, 1), GPU: device == "cuda" || device == "auto",
	}
	return out, nil
}

// params are the values of the swept keys among a job's overrides.
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

// expectedHash is the environment variable by which a sweep tells a job the configuration that it
// was checked with: files that changed since then are noticed.
const expectedHash = "FULCRUM_CONFIG_HASH"

// unchanged refuses a configuration that is not the one that the job's sweep was composed with.
func unchanged(c *configs.Composed) error {
	want := os.Getenv(expectedHash)
	if want == "" {
		return nil
	}
	hash, err := c.Fingerprint(hashExcluded...)
	if err != nil || hash == want {
		return err
	}
	return usagef("the configuration has changed since the sweep was composed: run resume SWEEP_FOLDER says what has changed")
}

// quoted makes any text one string of the override grammar.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\'`, `\\'`), "'", `\'`) + "'"
}

// unused refuses a sweep folder that holds anything.
func (p *plan) unused() error {
	names, err := entries(p.dir)
	if err != nil {
		return err
	}
	for name := range names {
		if name == ".lock" || name == multirunFile || atomicfile.IsTemp(name) { // of a controller that was killed before there was a sweep
			continue
		}
		if ledger.Exists(p.dir) {
			return usagef("%s holds a sweep: go on with it by  run resume %s  or name another hydra.sweep.dir", p.dir, p.dir)
		}
		return usagef("%s is not empty (%s): name another hydra.sweep.dir", p.dir, name)
	}
	return nil
}

// claimSweep takes a sweep folder for this controller.
func claimSweep(dir string) (*folder, error) {
	f, err := claim(dir)
	var usage *UsageError
	if errors.As(err, &usage) {
		return nil, usagef("%s: another controller owns this sweep; follow it:  run attach %s", dir, dir)
	}
	if err != nil {
		return nil, err
	}
	return f, f.clean()
}

// reopen plans the sweep of a folder again, from what its ledger keeps and the configuration files as
// they are now. It goes to the folder that the sweep was started in.
func reopen(dir string, l *ledger.Ledger) (*plan, error) {
	s, err := l.Sweep()
	if err != nil {
		return nil, err
	}
	if err := enter(s.Cwd, dir); err != nil {
		return nil, err
	}
	req := configs.Request{
		Overrides: append(slices.Clone(s.Overrides), "hydra.sweep.dir="+quoted(dir)), Multirun: true, Now: s.Created.Local(), AppName: "run",
	}
	for _, flag := range s.Flags {
		name, value, _ := strings.Cut(flag, "=")
		switch name {
		case "--config-path":
			req.ConfigPath = value
		case "--config-name":
			req.ConfigName = value
		case "--config-dir":
			req.ConfigDir = value
		}
	}
	if req.ConfigPath == "" {
		req.Library = configs.Library()
	}
	if req.Schema, err = (App{}).Schema(); err != nil {
		return nil, err
	}
	return newPlan(req)
}

// unfinished plans the jobs that have not ended well again, and lists those whose configuration is not
// the one that the sweep was started with.
func (p *plan) unfinished(jobs []ledger.Job) (again map[int]planned, changed []int, err error) {
	again = map[int]planned{}
	for _, job := range jobs {
		if job.State == launcher.Done || job.State == launcher.Pruned {
			continue
		}
		now, err := p.compose(job.Num, job.Overrides)
		if err != nil {
			return nil, nil, fmt.Errorf("job %d: %w", job.Num, err)
		}
		if now.row.Fingerprint != job.Fingerprint {
			changed = append(changed, job.Num)
		}
		again[job.Num] = now
	}
	return again, changed, nil
}
