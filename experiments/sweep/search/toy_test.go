package search

import (
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/rng"
)

// toy shows what a sweeper is: this file, and one line in a table (withToy). It draws until it meets a point that was
// not tried yet.
type toy struct {
	space *space
	seed  int64
}

func newToy(opt sweeper.Options, s *space) (sweeper.Sweeper, error) { return &toy{s, seed(opt)}, nil }

func (y *toy) Next(history []sweeper.Trial) (params []string, err error) {
	stream, seen := rng.New(y.seed, "toy trial", next(history)), tried(history)
	for range redraws {
		point := make([]float64, len(y.space.axes))
		for i := range point {
			point[i] = stream.Float64()
		}
		if params = y.space.texts(point); !seen[joined(params)] {
			break
		}
	}
	return params, nil
}
