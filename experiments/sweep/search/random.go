package search

import (
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/rng"
)

// random draws every trial by itself: numbers uniformly on their scale, choices with equal probability
// (Bergstra & Bengio 2012). The draw depends on seed and number only.
type random struct {
	space *space
	seed  int64
}

func newRandom(opt sweeper.Options, s *space) (sweeper.Sweeper, error) {
	return &random{s, seed(opt)}, nil
}

// redraws bounds the search for parameters that were not tried yet, in spaces with few points.
const redraws = 100

func (r *random) Next(history []sweeper.Trial) ([]string, error) {
	stream := rng.New(r.seed, "random trial", next(history))
	return r.space.untried(history, func() ([]float64, bool) {
		return list.Make(len(r.space.axes), func(int) float64 { return stream.Float64() }), true
	}), nil
}

// untried draws points until one is fit and its parameters were not tried yet, but for redraws times at most.
func (s *space) untried(history []sweeper.Trial, draw func() (point []float64, fit bool)) (params []string) {
	seen := tried(history)
	for range redraws {
		point, fit := draw()
		if params = s.texts(point); fit && !seen[joined(params)] {
			break
		}
	}
	return params
}
