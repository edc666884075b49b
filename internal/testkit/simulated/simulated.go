// Package simulated draws what tests of statistics judge: shares over many simulations, questions in clusters.
package simulated

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"fulcrum/internal/parallel"
)

// Share runs sims simulations, the i-th with its own generator, on all processors and returns the share that is true.
func Share(sims int, seed uint64, one func(rng *rand.Rand) bool) float64 {
	var yes atomic.Int64
	parallel.Each(context.Background(), sims, 0, func(i int) error {
		if one(rand.New(rand.NewPCG(uint64(i), seed))) {
			yes.Add(1)
		}
		return nil
	})
	return float64(yes.Load()) / float64(sims)
}

// Number returns how many simulations a test makes: few in the short size, where chance is allowed for by slack.
func Number(short, full int) (sims int, slack func(rate float64) float64) {
	sims = full
	if testing.Short() {
		sims = short
	}
	return sims, func(rate float64) float64 { return 3 * math.Sqrt(rate*(1-rate)/float64(sims)) }
}

// Clustered draws differences of n questions in clusters of size, with the intraclass correlation icc, and their clusters.
func Clustered(rng *rand.Rand, n, size int, icc float64, unequal bool) (d []float64, clusters []int64) {
	for c := 0; len(d) < n; c++ {
		own := size
		if unequal {
			own = 1 + rng.IntN(2*size-1)
		}
		shared := rng.NormFloat64()
		for range min(own, n-len(d)) {
			d = append(d, math.Sqrt(icc)*shared+math.Sqrt(1-icc)*rng.NormFloat64())
			clusters = append(clusters, int64(c))
		}
	}
	return d, clusters
}
