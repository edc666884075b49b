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

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/internal/program"
	"fulcrum/internal/ranks"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
)

// openSaved composes the configuration that a run folder holds, with further overrides, for the run itself, its hydra node included, or for
// another, and goes to the folder that the run was started in: its relative paths mean what they meant. dir is absolute.
func (a App) openSaved(dir string, itself bool, overrides []string) (*configs.Composed, runfolder.Saved, error) {
	var saved runfolder.Saved
	if err := runfolder.CheckExists(dir); err != nil {
		return nil, saved, err
	}
	if _, err := os.Stat(filepath.Join(dir, runfolder.Marker)); err != nil {
		return nil, saved, runfolder.NoRun(dir)
	}
	saved, err := runfolder.ReadSaved(dir)
	if err != nil {
		return nil, saved, err
	}
	for _, o := range overrides {
		key, value, _ := strings.Cut(strings.TrimLeft(o, "+~"), "=")
		if _, group := saved.Hydra.Runtime.Choices[key]; group && !strings.HasPrefix(value, "{") {
			return nil, saved, usage.Errorf("%s chooses a file of the configuration, and a run's folder holds what was composed of them: give "+
				"single keys, or start a new run", program.Quoted(o))
		}
	}
	from := saved.Hydra.Runtime.Cwd
	if saved.Hydra.Job.Chdir {
		from = dir
	}
	if err := runfolder.Enter(from, dir); err != nil {
		return nil, saved, err
	}
	for name, value := range saved.Hydra.Job.EnvSet {
		if err := os.Setenv(name, value); err != nil {
			return nil, saved, usage.Errorf("%s: hydra.job.env_set.%s: %v", dir, name, err)
		}
	}
	schema, err := a.Schema()
	if err != nil {
		return nil, saved, err
	}
	req := configs.Request{ConfigPath: filepath.Join(dir, ".hydra"), ConfigName: "config", Overrides: overrides, Schema: schema,
		AppName: "run"}
	if itself {
		req.HydraFile = filepath.Join(dir, ".hydra", "hydra.yaml")
	} else { // a rerun may have sections that did not act in the first run
		req.Beneath = configs.Library()
	}
	c, err := configs.Compose(req)
	if err != nil && len(overrides) == 0 && strings.Contains(err.Error(), req.ConfigPath) &&
		!strings.Contains(err.Error(), "environment variable") {
		err = fmt.Errorf("%w (the configuration of this run is of another version of the program, or was changed by hand)", err)
	}
	return c, saved, err
}

// Resume goes on with an interrupted run from its last state, in its own folder. A folder without a
// usable state starts over in place; a finished run says so. Overrides may change where and how it is computed, from here on.
func (a App) Resume(ctx context.Context, dir string, overrides ...string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	c, saved, err := a.openSaved(dir, true, nil)
	if err != nil {
		return err
	}
	if len(overrides) > 0 {
		if c, err = a.anew(c, dir, overrides); err != nil {
			return err
		}
	}
	err = runfolder.Unchanged(c) // another run may have taken the folder: the sweep would take its result for the job's
	if _, ok := errors.AsType[*usage.Error](err); ok {
		return usage.Errorf("%s: this folder holds another run than the sweep's job: move the folder away and resume the sweep", dir)
	}
	if err != nil {
		return err
	}
	cfg, err := job.Decode(c)
	if err != nil {
		return err
	}
	r := &run{Job: &job.Job{Config: cfg, Overrides: saved.Hydra.Overrides.Task}, composed: c, exp: saved.Choice("exp"), resumed: true,
		anew: overrides, trackers: a.Trackers, judge: a.judge}
	s, err := record.ReadSummary(dir)
	switch place, failed := ranks.Here(); {
	case cmp.Or(err, failed) != nil:
		return cmp.Or(err, failed)
	case !s.Over():
		return r.inProcesses(ctx, func() error { return r.goOn(ctx, dir) })
	case place != nil && place.Rank > 0:
		return nil // one process says that there is nothing to do
	}
	return r.goOn(ctx, dir)
}

// anew composes the run in dir with overrides of keys that may be given anew.
func (a App) anew(was *configs.Composed, dir string, overrides []string) (*configs.Composed, error) {
	c, _, err := a.openSaved(dir, true, overrides)
	if err != nil {
		return nil, err
	}
	if !runfolder.Alike(was, c) {
		others := slices.DeleteFunc(slices.Clone(overrides), func(key string) bool {
			one, _, err := a.openSaved(dir, true, []string{key})
			return err == nil && runfolder.Alike(was, one)
		})
		return nil, usage.Errorf("%s: a resumed run keeps its configuration but for the keys that %s names; a new run with it: %s",
			program.Quoted(others...), program.Command("help", "resume"), program.OnFolder("--rerun", dir, others...))
	}
	return c, c.RefuseIdle(c.Idle(c.Typed(overrides)))
}

// goOn resumes the run in dir.
func (r *run) goOn(ctx context.Context, dir string) error {
	cfg, c := r.Config, r.composed
	f, err := runfolder.Claim(dir)
	if err != nil {
		return err
	}
	defer f.Release()
	if err := cmp.Or(f.Share(r.Ranks.Hosts()), f.Clean()); err != nil {
		return err
	}
	if s, err := record.ReadSummary(dir); err != nil {
		return err
	} else if s.Over() {
		return finished(dir, s.State, cfg)
	}
	if cfg.Does().Trains {
		find := phases.FindState
		if cfg.Checkpoint.OnDamage == "previous" {
			find = phases.FindWhole
		}
		if r.Saved, err = find(dir); err != nil {
			return err
		}
		if r.Saved != nil {
			hash, err := runfolder.Fingerprint(c)
			if err != nil {
				return err
			}
			if hash != r.Saved.ConfigHash() {
				return usage.Errorf("%s: the configuration in %s differs from the state's; start anew "+
					"elsewhere: %s", dir, runfolder.Marker, program.OnFolder("--rerun", dir))
			}
		}
	}
	if len(r.anew) > 0 {
		if err := f.Renew(c); err != nil {
			return err
		}
	}
	return execute(ctx, r, f)
}

// finished prints that a run is done or pruned, and writes its report if it is missing: a run writes its report last, after finish has
// removed an older one.
func finished(dir, state string, cfg *job.Config) error {
	if state == record.StatePruned {
		stdout.Printf("%s: this run was ended early by its sweep's pruner (report.md says why); train it to the end elsewhere: %s\n",
			dir, program.OnFolder("--rerun", dir))
	} else {
		stdout.Printf("%s: this run is finished\n", dir)
	}
	if !cfg.Trains() {
		return nil
	}
	if _, err := phases.FindState(dir); err != nil { // nothing goes on from it, but the user should know
		stdout.Message(stdout.Errors(), "warning: "+err.Error())
	}
	if _, err := os.Stat(filepath.Join(dir, "report.html")); err != nil { // the last thing a run writes
		if _, err := os.Stat(filepath.Join(dir, record.ManifestFile)); err != nil { // else its digests are those of the end
			if err := writeManifest(dir); err != nil {
				return err
			}
		}
		if err := writeReport(dir, cfg); err != nil {
			return err
		}
	}
	stdout.Printf("report: %s\n", page.ReportPath(dir))
	return nil
}

// writeReport writes the report of a finished run, with its plots where it draws some, or `run report` drew some while it went on.
func writeReport(dir string, cfg *job.Config) error {
	if _, err := os.Stat(filepath.Join(dir, runreport.PlotsFolder)); err == nil || cfg.Report.Plots {
		run, err := record.ReadRun(dir)
		if err == nil {
			err = runreport.DrawPlots(run)
		}
		if err != nil {
			stdout.Message(stdout.Errors(), "warning: plots: "+err.Error())
		}
	}
	return runreport.WriteReport(dir)
}

// Rerun repeats a run's configuration in a new run folder, with further overrides. A relative
// hydra.run.dir starts in the current folder, other relative paths where the first run was started.
func (a App) Rerun(ctx context.Context, dir string, overrides []string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	c, saved, err := a.openSaved(dir, false, overrides)
	if err != nil {
		return err
	}
	if err := c.RefuseIdle(c.Idle(c.Typed(overrides))); err != nil {
		return err
	}
	out, err := runfolder.HydraValue(c, "run.dir")
	if err != nil {
		return err
	}
	if out == "" {
		return usage.Errorf("%s", emptyFolder)
	}
	if now, err := os.Getwd(); err != nil {
		return err
	} else if now != here && !filepath.IsAbs(out) {
		out = filepath.Join(here, out)
	}
	return a.start(ctx, c, saved.Choice("exp"), append(saved.Hydra.Overrides.Task, overrides...), out, runfolder.FirstMissing(out))
}
