package sweeper

// PrunerOptions is hydra.sweeper.pruner: when a run of a sweep is given up before its last epoch. Epochs are those of
// all phases, counted together.
type PrunerOptions struct {
	// none; asha: asynchronous successive halving; median: the median stopping rule
	Name string `koanf:"name" enum:"none,asha,median"`
	// no run ends before so many epochs; asha's first rung
	MinEpochs int `koanf:"min_epochs" range:"[1,inf)"`
	// asha: η, of the runs at a rung the best 1/η go on; rung k is at epoch min_epochs·η^k
	ReductionFactor int `koanf:"reduction_factor" range:"[2,1000]"`
	// median: other runs that must have reached an epoch before one ends there
	StartupTrials int `koanf:"startup_trials" range:"[1,inf)"`
}

// NoPruner is the name that ends no runs.
const NoPruner = "none"

// DefaultPrunerOptions prunes nothing.
func DefaultPrunerOptions() PrunerOptions {
	return PrunerOptions{Name: NoPruner, MinEpochs: 1, ReductionFactor: 3, StartupTrials: 5}
}

// Active reports whether runs may be pruned.
func (o PrunerOptions) Active() bool { return o.Name != NoPruner }
