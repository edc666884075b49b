package sweeper

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"fulcrum/internal/option"
)

// Options is hydra.sweeper: how many jobs a sweep has, what they are judged by, and what becomes of those
// that fail. What a sweeper has no use for, RefuseIdle refuses (basic: n_trials, n_jobs, seed).
type Options struct {
	// jobs of an optimizing sweeper
	NTrials int `koanf:"n_trials" range:"[1,inf)"`
	// an optimizing sweeper's trials at a time, where the launcher has room
	NJobs int `koanf:"n_jobs" range:"[1,inf)"`
	// basic: jobs composed and launched together; null = all
	MaxBatchSize *int `koanf:"max_batch_size" range:"[1,inf)"`
	// mapping of key: sweep, before what the command line sweeps; null = none
	Params any `koanf:"params"`
	// metric that is optimized, or a list: of an epoch row at the run's best checkpoint, seconds, or
	// eval.SPLIT.POLICY[.METRIC]; null = checkpoint.best.metric
	Objective any `koanf:"objective"`
	// minimize, maximize, or a list with one for each objective; null = losses, KL and seconds down, others up
	Direction any `koanf:"direction"`
	// what a result must satisfy to win, such as 'val_kl <= 0.1'
	Constraints []string `koanf:"constraints"`
	// seed of an optimizing sweeper's proposals; null = 0
	Seed *int64 `koanf:"seed"`
	// share of trials that may fail before an optimizing sweeper stops
	MaxFailureRate float64 `koanf:"max_failure_rate" range:"[0,1]"`
	// after a failed job: continue; stop; retry(n) or retry:n tries it up to n times more, then goes on
	OnFailure string `koanf:"on_failure"`
	// ends runs early that do badly beside their siblings
	Pruner PrunerOptions `koanf:"pruner"`

	// tpe: trials spread over the space before the model is asked; null = 10
	Startup *int `koanf:"n_startup_trials" range:"[1,inf)"`
	// tpe: points drawn from the good trials' density, of which the most promising is tried
	Candidates int `koanf:"n_ei_candidates" range:"[1,inf)" constant:"true"`
	// cmaes: trials in a generation, null = 4 + 3·ln(dimensions); nsgaii: parents, null = 20
	Population *int `koanf:"population_size" range:"[2,inf)"`
	// cmaes: initial standard deviation, as a share of each range
	Sigma0 float64 `koanf:"sigma0" range:"(0,1]"`
	// sobol: scramble the sequence by seed
	Scramble bool `koanf:"scramble" constant:"true"`

	// study: settings by name, each {from, checkpoint, overrides, label}, crossed with what is swept (sweeps.md)
	Arms map[string]ArmOptions `koanf:"arms"`
	// study: comparisons that the report answers, each {ask, arm, against, split, metric}
	Questions []QuestionOptions `koanf:"questions"`
}

// DefaultOptions returns every key with its default.
func DefaultOptions() Options {
	return Options{NTrials: 20, NJobs: 1, MaxFailureRate: 1, OnFailure: "continue", Pruner: DefaultPrunerOptions(),
		Candidates: 24, Sigma0: 0.3, Scramble: true}
}

// Validate checks what the tags cannot: objectives, directions, constraints and on_failure must parse.
func (o Options) Validate() error {
	goals, err := o.Goals()
	if err == nil && o.Pruner.Active() { // the objective must be known while a run is at work
		if name := goals.Objectives[0].Name; name == Seconds || strings.HasPrefix(name, evalPrefix) {
			err = option.Errorf("pruner.name", "%s judges runs by a metric of their epochs, and the first objective, %s, is none: "+
				"name another objective first, or pruner.name=none", o.Pruner.Name, name)
		}
	}
	_, failureErr := ParseOnFailure(o.OnFailure)
	if failureErr != nil {
		failureErr = option.Errorf("on_failure", "%v", failureErr)
	}
	return errors.Join(err, failureErr, o.study())
}

// OnFailure is what becomes of a sweep when a job has failed.
type OnFailure struct {
	Stop    bool // no new job starts; those that run save their state and end
	Retries int  // tries beside the first before the job counts as failed
}

var retryPattern = regexp.MustCompile(`^retry(?:\((\d+)\)|:(\d+))?$`)

// ParseOnFailure reads hydra.sweeper.on_failure: continue, stop, retry(n), retry:n, or retry for one more try.
func ParseOnFailure(text string) (OnFailure, error) {
	switch text = strings.TrimSpace(text); text {
	case "continue":
		return OnFailure{}, nil
	case "stop":
		return OnFailure{Stop: true}, nil
	}
	m := retryPattern.FindStringSubmatch(text)
	if m == nil {
		return OnFailure{}, fmt.Errorf("want continue, stop, retry(n) or retry:n, got %q", text)
	}
	if m[1]+m[2] == "" {
		return OnFailure{Retries: 1}, nil
	}
	n, err := strconv.Atoi(m[1] + m[2])
	if err != nil || n < 1 || n > 1000 {
		return OnFailure{}, fmt.Errorf("want from 1 to 1000 retries, got %q", text)
	}
	return OnFailure{Retries: n}, nil
}

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
