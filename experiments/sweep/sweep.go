// Package sweep runs many jobs: it plans them from one configuration, writes them into a ledger, hands them to a
// launcher, and goes on with what is missing after a kill. What it needs of a run is the interface Runs.
//
//	err := sweep.Start(ctx, runs, request, false)
package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/page"
	"fulcrum/reports/stats"
)

// multirunFile is the sweep's composed primary configuration, as Hydra writes it.
const multirunFile = "multirun.yaml"

// planFile says what a sweep is to be until it has a ledger: a kill in between leaves enough to plan it again. A folder with it and
// without jobs is that of a sweep.
const planFile = "." + ledger.FileName + ".plan"

// Runs is what a sweep needs to know of the runs that its jobs are.
type Runs interface {
	// Schema returns the type of a run's configuration.
	Schema() (*configs.Schema, error)
	// Check refuses a configuration from which no run could start.
	Check(c *configs.Composed) error
	// Report writes report.md of a sweep's folder; ErrNoReport in a program without sweep reports.
	Report(dir string) error
	// Annexes returns the parts of sweeps that the program may lack.
	Annexes() Annexes
}

// Annexes are parts of sweeps; a nil one is not built in.
type Annexes struct {
	Report func(dir string) error // writes report.md of a sweep's folder
	Slurm  func(launcher.Request) (launcher.Open, error)
	// Search returns the named sweeper that optimizes over a space.
	Search func(name string, opt sweeper.Options, dims []configs.Dimension) (sweeper.Sweeper, error)
}

// ErrNoReport says that sweep reports, an annex, are not built in.
var ErrNoReport = errors.New("sweep reports are not built into this program; `run status` has the table")

// Start runs a multirun: it composes and checks every job, makes the sweep's folder and ledger, and hands over to the
// controller, detached to one in a process of its own. Nothing is written before everything is known to be right.
func Start(ctx context.Context, runs Runs, req configs.Request, detached bool) error {
	_, err := start(ctx, runs, req, nil, detached)
	return err
}

// start is Start of a sweep that was asked for otherwise than by req where asked is not nil. It returns the sweep's folder.
func start(ctx context.Context, runs Runs, req configs.Request, asked *ledger.Sweep, detached bool) (string, error) {
	p, err := newPlan(runs, req)
	if err != nil {
		return "", err
	}
	if err := cmp.Or(sweeper.RefuseIdle(p.sweeper, req.Overrides), p.unused()); err != nil {
		return "", err
	}
	jobs, err := p.jobs()
	if err != nil {
		return "", err
	}
	if err := p.master.RefuseIdle(p.idle); err != nil {
		return "", err
	}
	if note := repeated(jobs); note != "" {
		stdout.Message(stdout.Errors(), "warning: "+note)
	}
	if note := p.master.UnreadNote(p.unread); note != "" {
		stdout.Message(stdout.Errors(), "warning: "+note)
	}
	if dry, _ := p.master.Value("dry_run").(bool); dry {
		return p.dir, p.dryRun(ctx, jobs)
	}
	defer interrupt.Hold(nil).Release() // planning is done; what is written now is written whole
	f, err := claimSweep(p.dir)
	if err != nil {
		return "", err
	}
	defer f.Release()
	if err := p.unused(); err != nil { // another controller may have come first
		return "", err
	}
	return p.dir, p.begin(ctx, f, jobs, asked, detached)
}

// begin writes what a sweep consists of into its folder, and hands over to the controller, but for a sweep that grows: it waits for Resume.
// Killed on the way, a sweep can be resumed: asked is then what was asked for at first. nil: that is the plan.
func (p *plan) begin(ctx context.Context, f *runfolder.Folder, jobs []planned, asked *ledger.Sweep, detached bool) error {
	about, err := p.sweep()
	if err != nil {
		return err
	}
	if asked != nil {
		about.Overrides, about.Command, about.Ask = asked.Overrides, asked.Command, asked.Ask
	}
	if err := atomicfile.WriteJSON(filepath.Join(p.dir, planFile), about); err != nil {
		return err
	}
	text, err := p.master.YAML("job", false, "")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(p.dir, multirunFile), []byte(text), 0o644); err != nil {
		return err
	}
	if err := keepProgram(p.dir); err != nil {
		return err
	}
	rows := make([]ledger.Job, len(jobs))
	starts := map[int]launcher.Job{}
	for i, j := range jobs {
		rows[i], starts[j.row.Num] = j.row, expecting(j.start, j.row.Fingerprint)
	}
	l, err := ledger.Create(p.dir, about, rows)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := os.Remove(filepath.Join(p.dir, planFile)); err != nil { // the ledger says it all
		return err
	}
	switch {
	case detached:
		f.Release()
		return detach(ctx, p.dir)
	case about.Ask != nil:
		return nil
	}
	return control(ctx, p, l, starts, about.Generation)
}

// repeated names a job that would train what another trains: one value was written twice, or what is swept changes nothing of it.
func repeated(jobs []planned) string {
	groups := stats.GroupBy(jobs, func(j planned) string { return cmp.Or(j.row.Fingerprint, strings.Join(j.row.Overrides, " ")) })
	for _, same := range groups {
		if n := len(jobs) - len(groups); len(same) > 1 {
			first, again := same[0].row, same[1].row
			what := strings.Join(first.Overrides, " ")
			if idle := list.Filter(again.Overrides, func(o string) bool { return !slices.Contains(first.Overrides, o) }); len(idle) > 0 {
				what = strings.Join(idle, " ") + " changes nothing of it"
			}
			return fmt.Sprintf("%d of %d jobs %s another: job %d is job %d (%s)", n, len(jobs), page.Verb(n, "repeats", "repeat"), again.Num,
				first.Num, what)
		}
	}
	return ""
}

// unused refuses a sweep folder that holds anything.
func (p *plan) unused() error {
	names, err := runfolder.Entries(p.dir)
	if err != nil {
		return err
	}
	for name := range names {
		// of a controller that was killed before there was a sweep
		if name == ".lock" || name == filepath.Dir(programFolder) || name == multirunFile || atomicfile.IsTemp(name) ||
			strings.HasPrefix(name, "."+ledger.FileName) {
			continue
		}
		if ledger.Exists(p.dir) {
			return usage.Errorf("%s holds a sweep: name another hydra.sweep.dir, or go on with it: %s", p.dir, program.OnFolder("resume", p.dir))
		}
		return usage.Errorf("%s is not empty (%s): name another hydra.sweep.dir", p.dir, name)
	}
	return nil
}

// claimSweep takes a sweep folder for this controller.
func claimSweep(dir string) (*runfolder.Folder, error) {
	f, err := runfolder.Claim(dir)
	if _, ok := errors.AsType[*usage.Error](err); ok {
		return nil, usage.Errorf("%s: another controller owns this sweep; follow it: %s", dir, program.OnFolder("attach", dir))
	}
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, controllerLog)
	own, _ := os.Stat("/dev/stdout")
	if kept, err := os.Stat(log); err == nil && !os.SameFile(kept, own) { // of an earlier one: nobody should follow it
		os.Rename(log, log+".old")
	}
	return f, f.CleanSweep()
}

// reopen plans the sweep of a folder again, from what its ledger keeps, further overrides and the
// configuration files as they are now. It goes to the folder that the sweep was started in.
func reopen(runs Runs, dir string, s ledger.Sweep) (*plan, error) {
	if err := runfolder.Enter(s.Cwd, dir); err != nil {
		return nil, err
	}
	req := configs.Request{Overrides: append(slices.Clone(s.Overrides), "hydra.sweep.dir="+configs.Quote(dir)), Multirun: true,
		Now: s.Created.Local(), AppName: "run"}
	var err error
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
	if req.Schema, err = runs.Schema(); err != nil {
		return nil, err
	}
	return newPlan(runs, req)
}
