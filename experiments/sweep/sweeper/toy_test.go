package sweeper

import "fulcrum/internal/rng"

// toy shows what a sweeper is: this file, and one line in a table (withToy). It draws every number near the middle.
type toy struct {
	space *space
	seed  int64
}

func newToy(opt Options, s *space) (Sweeper, error) { return &toy{s, opt.seed()}, nil }

func (y *toy) Next(history []Trial) ([]string, error) {
	stream := rng.New(y.seed, "toy trial", next(history))
	point := make([]float64, len(y.space.axes))
	for i := range point {
		point[i] = (1 + stream.Float64()) / 3
	}
	return y.space.texts(point), nil
}
