package pruner

import "fulcrum/internal/option"

// Options is hydra.sweeper.pruner: when a run of a sweep is given up before its last epoch. Epochs are those of
// all phases, counted together.
type Options struct {
	// none; asha: asynchronous successive halving; median: the median stopping rule
	Name string `koanf:"name" enum:"none,asha,median"`
	// no run ends before so many epochs; asha's first rung
	MinEpochs int `koanf:"min_epochs" range:"[1,inf)"`
	// asha: η, of the runs at a rung the best 1/η go on; rung k is at epoch min_epochs·η^k
	ReductionFactor int `koanf:"reduction_factor" range:"[2,1000]"`
	// median: other runs that must have reached an epoch before one ends there
	StartupTrials int `koanf:"startup_trials" range:"[1,inf)"`
}

// None is the name that ends no runs.
const None = "none"

// DefaultOptions prunes nothing.
func DefaultOptions() Options {
	return Options{Name: None, MinEpochs: 1, ReductionFactor: 3, StartupTrials: 5}
}

// Validate checks what the tags cannot.
func (o Options) Validate() error {
	if _, err := table().Get(o.Name); o.Active() && err != nil {
		return option.Errorf("name", "%v, or none", err)
	}
	return nil
}

// Active reports whether runs may be pruned.
func (o Options) Active() bool { return o.Name != None }
