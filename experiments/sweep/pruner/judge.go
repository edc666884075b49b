package pruner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"fulcrum/configs"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/record"
)

// Judge says after an epoch why the run should end here; "": it goes on.
type Judge = func(epoch int, m phases.Metrics, best string, minimize bool) (string, error)

// JudgeOf returns what ends the run in dir when it does badly beside the other jobs of its sweep; nil when it is no job
// of a sweep, or of one that ends no runs. A run that was resumed goes on with what it had told its siblings.
// epochs are those of all phases.
func JudgeOf(dir string, epochs int) (Judge, error) {
	opt, sweep, num, err := jobOf(dir)
	if err != nil || !opt.Pruner.Active() {
		return nil, err
	}
	goals, err := opt.Goals()
	if err != nil {
		return nil, err
	}
	first := goals.Objectives[0]
	p, err := New(opt.Pruner, sweep, num, epochs)
	if err != nil {
		return nil, err
	}
	rows, err := record.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	seeded := 0
	return func(epoch int, m phases.Metrics, best string, minimize bool) (string, error) {
		name := cmp.Or(first.Name, best)
		v, ok := m[name].(float64)
		if !ok {
			numbers := list.Filter(slices.Sorted(maps.Keys(m)), func(name string) bool { _, ok := m[name].(float64); return ok })
			return "", usage.Errorf("hydra.sweeper.objective: %v", registry.Unknown("metric", name, numbers))
		}
		minimize = first.Minimizes(minimize)
		for ; seeded < len(rows.Epochs); seeded++ {
			earlier, ok := rows.Epochs[seeded].Number(name)
			if !ok {
				return "", fmt.Errorf("pruner: epoch %d of metrics.jsonl has no %s", seeded+1, name)
			}
			if err := p.Seed(seeded+1, name, earlier, minimize); err != nil {
				return "", err
			}
		}
		return p.Report(epoch, name, v, minimize)
	}, nil
}

// jobOf reads from a run's own folder which job of which sweep it is, and the sweep's options: the same for a run that
// starts and one that is resumed. Outside a sweep, and where no pruner is set, the options are the defaults.
func jobOf(dir string) (opt sweeper.Options, sweep string, num int, err error) {
	opt = sweeper.DefaultOptions()
	saved, err := runfolder.ReadSaved(dir)
	if errors.Is(err, fs.ErrNotExist) { // a dry run has none
		return opt, "", 0, nil
	}
	if err != nil {
		return opt, "", 0, err
	}
	num, inSweep := saved.Hydra.Job.Num.(int)
	if name := saved.Hydra.Sweeper.Pruner.Name; !inSweep || name == "" || name == sweeper.NoPruner {
		return opt, "", 0, nil
	}
	c, err := configs.Compose(configs.Request{ConfigPath: filepath.Join(dir, ".hydra"), ConfigName: "hydra", AppName: "run"})
	if err != nil {
		return opt, "", 0, err
	}
	if _, opt, err = sweeper.Resolve(saved.Choice("hydra/sweeper"), saved.Choice("hydra/sweeper/sampler"),
		func(dst any) error { return c.DecodeHydra("sweeper", dst) }); err != nil {
		return opt, "", 0, err
	}
	if sweep, err = runfolder.HydraValue(c, "sweep.dir"); err != nil {
		return opt, "", 0, err
	}
	if !filepath.IsAbs(sweep) {
		sweep = filepath.Join(saved.Hydra.Runtime.Cwd, sweep)
	}
	return opt, sweep, num, nil
}
