package search

import (
	"math"

	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/rng"
)

// tpe is the tree-structured Parzen estimator (Bergstra et al. 2011, 2013). The trials so far are split into
// the best few and the others; a density is fitted to each, l and g, and of some points drawn from l the one
// with the largest l/g is tried next, which is the one with the largest expected improvement.
//
// Apart from the papers: the densities are multivariate (see parzen), the first trials are spread by a Sobol
// sequence, and two constants differ from Optuna's, which are made for hundreds of trials: kernels are half as
// wide and 15 % of the trials are good, not 10 % (docs/search.md has the measurements).
type tpe struct {
	space      *space
	seed       int64
	startup    int
	candidates int
	first      *sobol // spreads the trials before there is something to learn from
}

func newTPE(opt sweeper.Options, s *space) (sweeper.Sweeper, error) {
	first, err := scrambledSobol(s, seed(opt))
	return &tpe{space: s, seed: seed(opt), startup: option.Or(opt.Startup, 10), candidates: opt.Candidates, first: first}, err
}

func (t *tpe) Next(history []sweeper.Trial) ([]string, error) {
	number := next(history)
	order := ranked(history)
	if number < t.startup || len(order) == 0 {
		return t.first.at(number, history), nil
	}
	most := min(int(math.Ceil(0.15*float64(len(order)))), 25)
	best := list.SetBy(order[:most], func(t sweeper.Trial) int { return t.Number })
	var below, above [][]float64
	for _, trial := range byNumber(history) {
		if !ended(trial) && !running(trial) {
			continue // a failure has no value, and may have nothing to do with its parameters
		}
		point, err := t.space.point(trial)
		if err != nil {
			return nil, err
		}
		if best[trial.Number] {
			below = append(below, point)
		} else { // a running trial counts as a bad one, so that the next does not go to the same place
			above = append(above, point)
		}
	}
	l := newParzen(t.space.axes, below)
	g := newParzen(t.space.axes, above)
	stream := rng.New(t.seed, "tpe trial", number)
	seen := tried(history)
	var params []string
	top, fresh := math.Inf(-1), false
	for range t.candidates {
		point := l.draw(stream)
		texts := t.space.texts(point)
		for i := range point { // where the value that is tried really lies
			point[i], _ = t.space.axes[i].unit(texts[i])
		}
		score, isNew := l.logDensity(point)-g.logDensity(point), !seen[joined(texts)]
		if params == nil || isNew && !fresh || isNew == fresh && score > top {
			params, top, fresh = texts, score, isNew
		}
	}
	return params, nil
}
