package pruner

import "fulcrum/internal/option"

// Options is hydra.sweeper.pruner: when a run of a sweep is given up before its last epoch.
type Options struct {
	Name            string  `koanf:"name" help:"none; asha: asynchronous successive halving; median: the median stopping rule" enum:"none,asha,median"`
	MinEpochs       int     `koanf:"min_epochs" help:"no run ends before so many epochs, those of all phases counted together; the first rung of asha" range:"[1,inf)"`
	ReductionFactor int     `koanf:"reduction_factor" help:"asha, η: the best 1/η of the runs go on at each rung; rungs are min_epochs·η^k epochs apart from the start" range:"[2,inf)"`
	StartupTrials   int     `koanf:"startup_trials" help:"median: runs that must have reached an epoch before one ends there" range:"[1,inf)"`
	Percentile      float64 `koanf:"percentile" help:"median: a run ends when it is worse than this share of the others, in percent; 50 is the median" range:"(0,100)"`
	IntervalEpochs  int     `koanf:"interval_epochs" help:"median: epochs between decisions" range:"[1,inf)"`
}

// The pruners.
const (
	None   = "none"
	ASHA   = "asha"
	Median = "median"
)

// DefaultOptions prunes nothing.
func DefaultOptions() Options {
	return Options{Name: None, MinEpochs: 1, ReductionFactor: 3, StartupTrials: 5, Percentile: 50, IntervalEpochs: 1}
}

// Validate checks what the tags cannot.
func (o Options) Validate() error {
	switch o.Name {
	case None, ASHA, Median:
		return nil
	}
	return option.Errorf("name", "want none, asha or median, got %q", o.Name)
}

// Active reports whether runs may be pruned.
func (o Options) Active() bool { return o.Name == ASHA || o.Name == Median }
