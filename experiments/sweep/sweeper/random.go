package sweeper

import "fulcrum/internal/rng"

// random draws every trial by itself: numbers uniformly on their scale, choices with equal probability
// (Bergstra & Bengio 2012). The draw depends on seed and number only.
type random struct {
	space *space
	seed  int64
}

func newRandom(opt Options, s *space) (Sweeper, error) { return &random{s, opt.seed()}, nil }

// redraws bounds the search for parameters that were not tried yet, in spaces with few points.
const redraws = 100

// Next implements Sweeper.
func (r *random) Next(history []Trial) ([]string, error) {
	stream := rng.New(r.seed, "random trial", next(history))
	seen := tried(history)
	point := make([]float64, len(r.space.axes))
	var params []string
	for range redraws {
		for i := range point {
			point[i] = stream.Float64()
		}
		if params = r.space.texts(point); !seen[joined(params)] {
			break
		}
	}
	return params, nil
}
