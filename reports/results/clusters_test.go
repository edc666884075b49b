package results

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"fulcrum/internal/stat"
	"fulcrum/reports/stats"
)

// Several seeds on clustered questions: the arms' interval counts clusters too.
func TestArmsCountClusters(t *testing.T) {
	const n, seeds = 200, 3
	sims, slack := simulations(60, 2000)
	rate := func(known bool) float64 {
		return share(sims, 9, func(rng *rand.Rand) bool {
			shared, clusters := clustered(rng, n, 5, 0.5, true)
			a := Arm{Seeds: []int64{1, 2, 3}, Scores: make([][]float64, seeds)}
			b := a
			b.Scores = make([][]float64, seeds)
			if known {
				a.Clusters = clusters
			}
			for i := range n {
				a.QueryIDs = append(a.QueryIDs, int64(i))
			}
			b.QueryIDs = a.QueryIDs
			for s := range seeds {
				a.Scores[s], b.Scores[s] = make([]float64, n), make([]float64, n)
				for i := range n {
					a.Scores[s][i] = shared[i] + 0.1*rng.NormFloat64()
				}
			}
			return armErrorOf(a, b, true).beyond(math.Abs(stat.Mean(a.QueryScores()))) < 0.05 // what Against names a winner by
		})
	}
	alone, known := rate(false), rate(true)
	t.Logf("3 seeds: %.1f %% false winners, %.1f %% with clusters", 100*alone, 100*known)
	if limit := 0.06 + slack(0.06); known > limit || alone < 0.1 {
		t.Errorf("%.1f %% false winners, want at most %.1f %%; %.1f %% where clusters are not known", 100*known, 100*limit, 100*alone)
	}
}

func quick() stats.Options {
	opt := stats.DefaultOptions()
	opt.Resamples = 1000
	return opt
}

// share runs sims simulations, the i-th with its own generator, on all processors and returns the share that is true.
func share(sims int, seed uint64, one func(rng *rand.Rand) bool) float64 {
	var mu sync.Mutex
	var workers sync.WaitGroup
	next, yes := 0, 0
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= sims {
					return
				}
				if one(rand.New(rand.NewPCG(uint64(i), seed))) {
					mu.Lock()
					yes++
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return float64(yes) / float64(sims)
}

// simulations is how many a test makes: few in the short size, where chance is allowed for by slack.
func simulations(short, full int) (sims int, slack func(rate float64) float64) {
	sims = full
	if testing.Short() {
		sims = short
	}
	return sims, func(rate float64) float64 { return 3 * math.Sqrt(rate*(1-rate)/float64(sims)) }
}

// clustered draws differences of n questions in clusters of size, with the intraclass correlation icc, and their clusters.
func clustered(rng *rand.Rand, n, size int, icc float64, unequal bool) (d []float64, clusters []int64) {
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
