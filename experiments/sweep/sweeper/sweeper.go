// Package sweeper chooses the trials of a sweep. A sweeper is a pure function of its options, the space and
// the history of trials: it keeps nothing, so that a sweep whose controller was killed goes on as if nothing
// had happened, and the same seed and history always give the same proposal.
//
//	s, err := sweeper.New("tpe", opt, space)
//	params, err := s.Next(history) // one value for each dimension, as written behind key=
//
// It knows nothing of processes, launchers and ledgers. What a run came to is read from its folder
// (Goals.Read).
package sweeper

import (
	"fmt"
	"math"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/registry"
)

// Trial is a job as a sweeper sees it.
type Trial struct {
	Number    int       // from 0, without gaps
	Params    []string  // one for each dimension of the space, as written behind key=
	State     string    // launcher.Done, Pruned, Failed; anything else is still to come to its end
	Losses    []float64 // one for each objective, less is better, infinite for NaN; of Done and Pruned
	Violation float64   // of the constraints; 0 = feasible
}

// ended reports whether the trial has a result.
func (t Trial) ended() bool { return t.State == launcher.Done || t.State == launcher.Pruned }

// running reports whether the result is still to come.
func (t Trial) running() bool { return !launcher.Ended(t.State) }

// Sweeper proposes trials.
type Sweeper interface {
	// Next returns the parameters of the next trial. The history holds every trial proposed so far, in any
	// order, those that still run included.
	Next(history []Trial) (params []string, err error)
}

type maker func(opt Options, s *space) (Sweeper, error)

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

// Names returns the names of the optimizing sweepers. basic is none: its jobs are known from the start.
func Names() []string { return table().Names() }

// New returns the named optimizing sweeper over a space.
func New(name string, opt Options, dims []configs.Dimension) (Sweeper, error) {
	return newFrom(table(), name, opt, dims)
}

func newFrom(t *registry.Table[maker], name string, opt Options, dims []configs.Dimension) (Sweeper, error) {
	newSweeper, err := t.Get(name)
	if err != nil {
		return nil, err
	}
	s, err := newSpace(dims)
	if err != nil {
		return nil, fmt.Errorf("hydra/sweeper=%s: %w", name, err)
	}
	sweeper, err := newSweeper(opt, s)
	if err != nil {
		return nil, fmt.Errorf("hydra/sweeper=%s: %w", name, err)
	}
	return sweeper, nil
}

// next returns the number of the trial that comes after history.
func next(history []Trial) int {
	n := 0
	for _, t := range history {
		n = max(n, t.Number+1)
	}
	return n
}

// loss returns the trial's first objective; NaN counts as worse than any number.
func (t Trial) loss() float64 {
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
