package sweeper

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
)

// Basic is the sweeper of grids: its jobs are known before the first starts.
const Basic = "basic"

// optunaOptions is hydra.sweeper of Hydra's optuna plugin: its keys that we have as well, and its own.
type optunaOptions struct {
	Options `koanf:",squash"`
	// the group hydra/sweeper/sampler
	Sampler           samplerOptions `koanf:"sampler"`
	Storage           any            `koanf:"storage"`
	StudyName         *string        `koanf:"study_name"`
	SearchSpace       any            `koanf:"search_space"`
	CustomSearchSpace any            `koanf:"custom_search_space"`
}

// samplerOptions is hydra.sweeper.sampler: what is given there wins over the sweeper's own key.
type samplerOptions struct {
	Target     *string  `koanf:"_target_"`
	Seed       *int64   `koanf:"seed"`
	Startup    *int     `koanf:"n_startup_trials" range:"[1,inf)"`
	Candidates *int     `koanf:"n_ei_candidates" range:"[1,inf)"`
	Population *int     `koanf:"population_size" range:"[2,inf)"`
	Sigma0     *float64 `koanf:"sigma0" range:"(0,1]"`
	Scramble   *bool    `koanf:"scramble"`
}

// Validate refuses what has no counterpart here.
func (o optunaOptions) Validate() error {
	const ranges = "write the ranges on the command line or in hydra.sweeper.params (key: interval(…))"
	for _, key := range []struct {
		name, instead string
		set           bool
	}{
		{"storage", "the sweep's own ledger in hydra.sweep.dir holds its trials, and `run resume SWEEP_DIR` goes on with them", o.Storage != nil},
		{"study_name", "a sweep is named by its folder: set hydra.sweep.dir", o.StudyName != nil},
		{"search_space", ranges, o.SearchSpace != nil},
		{"custom_search_space", ranges, o.CustomSearchSpace != nil},
	} {
		if key.set {
			return option.Errorf(key.name, "not supported: %s", key.instead)
		}
	}
	return o.Options.Validate()
}

// options returns o's options with the sampler's own.
func (o optunaOptions) options() Options {
	opt, s := o.Options, o.Sampler
	opt.Seed, opt.Startup, opt.Population = cmp.Or(s.Seed, opt.Seed), cmp.Or(s.Startup, opt.Startup), cmp.Or(s.Population, opt.Population)
	opt.Candidates = option.Or(s.Candidates, opt.Candidates)
	opt.Sigma0 = option.Or(s.Sigma0, opt.Sigma0)
	opt.Scramble = option.Or(s.Scramble, opt.Scramble)
	return opt
}

// samplers maps the options of hydra/sweeper/sampler to sweepers of ours, and to Optuna's classes, their _target_.
func samplers() map[string]struct{ ours, class string } {
	return map[string]struct{ ours, class string }{"tpe": {"tpe", "TPESampler"}, "random": {"random", "RandomSampler"},
		"cmaes": {"cmaes", "CmaEsSampler"}, "nsgaii": {"nsgaii", "NSGAIISampler"}, "qmc": {"sobol", "QMCSampler"},
		"grid": {Basic, "GridSampler"}}
}

// Resolve finds the sweeper and the options that a choice of the group hydra/sweeper stands for: one of ours,
// or Hydra's optuna plugin with its group hydra/sweeper/sampler. decode fills a struct from the node
// hydra.sweeper. The name is Basic, Study, or one that optimizes.
//
//	name, opt, err := sweeper.Resolve(c.Choice("hydra/sweeper"), c.Choice("hydra/sweeper/sampler"),
//		func(dst any) error { return c.DecodeHydra("sweeper", dst) })
func Resolve(choice, samplerChoice string, decode func(dst any) error) (name string, opt Options, err error) {
	if choice != "optuna" {
		opt = DefaultOptions()
		if err := decode(&opt); err != nil {
			return "", opt, err
		}
		return choice, opt, opt.fits(choice)
	}
	o := optunaOptions{Options: DefaultOptions()}
	if err := decode(&o); err != nil {
		return "", opt, err
	}
	known := samplers()
	sampler, ok := known[samplerChoice]
	if !ok {
		near := "tpe"
		if name, typo := registry.Nearest(samplerChoice, slices.Collect(maps.Keys(known))); typo && samplerChoice != "gp" {
			near = name
		}
		return "", opt, fmt.Errorf("hydra/sweeper/sampler=%s: not supported; the nearest is hydra/sweeper/sampler=%s", samplerChoice, near)
	}
	if err := o.Sampler.chosen(samplerChoice); err != nil {
		return "", opt, err
	}
	return sampler.ours, o.options(), nil
}

// Missing says that this program has no part that a sweep asks for: what optimizes and what prunes are an annex.
func Missing(what string) error {
	return usage.Errorf("%s: this program is built without the annex \"search\"", what)
}

// fits refuses options that the chosen sweeper would pass over in silence, and a study without arms.
func (o Options) fits(choice string) error {
	switch {
	case choice != Study && len(o.Arms) > 0:
		return fmt.Errorf("hydra.sweeper.arms: hydra/sweeper=%s has no arms: want hydra/sweeper=%s", choice, Study)
	case choice == Study && len(o.Arms) == 0:
		return fmt.Errorf("hydra/sweeper=%s: no arms: name them in hydra.sweeper.arms, or take a study that has them, such as "+
			"exp=shapes_study", Study)
	case choice == Study && o.Pruner.Active():
		return fmt.Errorf("hydra.sweeper.pruner.name=%s: the arms of a study are compared at their ends, and others start from "+
			"them: want pruner.name=none", o.Pruner.Name)
	}
	return nil
}

// RefuseIdle refuses overrides, as typed, of what only a sweeper that chooses its trials reads: the jobs of a grid, and of a study, are
// known from the start.
func RefuseIdle(name string, overrides []string) error {
	if name != Basic && name != Study {
		return nil
	}
	for _, o := range overrides {
		key, _, _ := strings.Cut(strings.TrimLeft(o, "+"), "=")
		key, ok := strings.CutPrefix(key, "hydra.sweeper.")
		instead := ""
		switch key {
		case "n_trials", "max_failure_rate", "seed":
		case "n_jobs":
			instead = "; jobs at a time are hydra.launcher.n_jobs, with hydra/launcher=local"
		default:
			ok = false
		}
		if ok {
			return usage.Errorf("%s has no effect: hydra/sweeper=%s makes every job that is asked for; the key is of sweepers that choose "+
				"their trials, such as hydra/sweeper=tpe%s", o, name, instead)
		}
	}
	return nil
}

// chosen refuses a _target_ that is another sampler's than the chosen option's: the option decides what runs.
func (s samplerOptions) chosen(choice string) error {
	if s.Target == nil {
		return nil
	}
	const module = "optuna.samplers."
	var want []string
	for _, name := range slices.Sorted(maps.Keys(samplers())) {
		if *s.Target != module+name && *s.Target != module+samplers()[name].class {
			want = append(want, name)
			continue
		}
		if name == choice {
			return nil
		}
		return fmt.Errorf("hydra.sweeper.sampler._target_=%s: the option chooses the sampler, and hydra/sweeper/sampler=%s is "+
			"chosen: want hydra/sweeper/sampler=%s", *s.Target, choice, name)
	}
	return fmt.Errorf("hydra.sweeper.sampler._target_=%s: no such sampler here: choose one by hydra/sweeper/sampler=%s",
		*s.Target, strings.Join(want, "|"))
}
