// Package search chooses the trials of a sweep. A sweeper is a pure function of its options, the space and
// the history of trials: it keeps nothing, so that a sweep whose controller was killed goes on as if nothing
// had happened, and the same seed and history always give the same proposal.
//
//	s, err := search.New("tpe", opt, space)
//	params, err := s.Next(history) // one value for each dimension, as written behind key=
//
// It knows nothing of processes, launchers and ledgers.
package search

import (
	"fmt"
	"math"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/option"
	"fulcrum/internal/registry"
)

type maker func(opt sweeper.Options, s *space) (sweeper.Sweeper, error)

// table lists the optimizing sweepers.
func table() *registry.Table[maker] {
	t := registry.New[maker]("sweeper")
	t.Add("cmaes", newCMAES)
	t.Add("nsgaii", newNSGAII)
	t.Add("random", newRandom)
	t.Add("sobol", newSobol)
	t.Add("tpe", newTPE)
	return t
}

// New returns the named optimizing sweeper over a space.
func New(name string, opt sweeper.Options, dims []configs.Dimension) (sweeper.Sweeper, error) {
	return newFrom(table(), name, opt, dims)
}

func newFrom(t *registry.Table[maker], name string, opt sweeper.Options, dims []configs.Dimension) (sweeper.Sweeper, error) {
	newSweeper, err := t.Get(name)
	if err != nil {
		return nil, registry.Unknown("hydra/sweeper", name, append(t.Names(), sweeper.Basic, sweeper.Study, "optuna"))
	}
	var named sweeper.Sweeper
	s, err := newSpace(dims)
	if err == nil {
		named, err = newSweeper(opt, s)
	}
	if err != nil {
		return nil, fmt.Errorf("hydra/sweeper=%s: %w", name, err)
	}
	return named, nil
}

// seed returns the seed of all random choices.
func seed(opt sweeper.Options) int64 { return option.Or(opt.Seed, 0) }

// ended reports whether the trial has a result.
func ended(t sweeper.Trial) bool { return t.State == launcher.Done || t.State == launcher.Pruned }

// running reports whether the result is still to come.
func running(t sweeper.Trial) bool { return !launcher.Ended(t.State) }

// next returns the number of the trial that comes after history.
func next(history []sweeper.Trial) int {
	n := 0
	for _, t := range history {
		n = max(n, t.Number+1)
	}
	return n
}

// loss returns the trial's first objective; NaN counts as worse than any number.
func loss(t sweeper.Trial) float64 {
	if len(t.Losses) == 0 {
		return math.Inf(1)
	}
	return number(t.Losses[0])
}

// number returns x, infinity for NaN.
func number(x float64) float64 {
	if math.IsNaN(x) {
		return math.Inf(1)
	}
	return x
}
