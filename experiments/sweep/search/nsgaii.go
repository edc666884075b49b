package search

import (
	"math/rand/v2"
	"slices"

	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/option"
	"fulcrum/internal/rng"
)

// nsgaii is the non-dominated sorting genetic algorithm (Deb et al. 2002), for several objectives and many trials.
// The first population is spread by a Sobol sequence. After that the parents are the best trials of the whole
// history, front by front and the less crowded first, so that the elite is never lost and no generation has to
// wait for another; a child takes each key from one of two parents, each the better of two drawn, and each key is
// drawn anew with probability 1/D. Two numbers may also be blended: the child lies between or near its parents.
type nsgaii struct {
	space      *space
	seed       int64
	population int
	first      *sobol
}

func newNSGAII(opt sweeper.Options, s *space) (sweeper.Sweeper, error) {
	first, err := scrambledSobol(s, seed(opt))
	return &nsgaii{space: s, seed: seed(opt), population: option.Or(opt.Population, 20), first: first}, err
}

func (n *nsgaii) Next(history []sweeper.Trial) ([]string, error) {
	number := next(history)
	parents := ranked(history)
	if number < n.population || len(parents) < 2 {
		return n.first.at(number, history), nil
	}
	parents = parents[:min(n.population, len(parents))]
	points := make([][]float64, len(parents))
	for i, t := range parents {
		var err error
		if points[i], err = n.space.point(t); err != nil {
			return nil, err
		}
	}
	stream := rng.New(n.seed, "nsgaii trial", number)
	return n.space.untried(history, func() ([]float64, bool) {
		return n.mate(points[tournament(len(points), stream)], points[tournament(len(points), stream)], stream), true
	}), nil
}

// tournament draws two of n ranks and returns the better.
func tournament(n int, r *rand.Rand) int { return min(r.IntN(n), r.IntN(n)) }

// mate makes a child: uniform crossover, or for numbers in half of the cases a blend (Eshelman & Schaffer 1993,
// BLX-0.5), then mutation.
func (n *nsgaii) mate(a, b []float64, r *rand.Rand) []float64 {
	child := slices.Clone(a)
	for i := range child {
		if r.Float64() < 0.5 {
			child[i] = b[i]
		}
		if !n.space.axes[i].categorical() && r.Float64() < 0.5 {
			low, high := min(a[i], b[i]), max(a[i], b[i])
			reach := (high - low) / 2
			child[i] = min(max(low-reach+r.Float64()*(high-low+2*reach), 0), 1)
		}
		if r.Float64() < 1/float64(len(child)) {
			child[i] = r.Float64()
		}
	}
	return child
}
