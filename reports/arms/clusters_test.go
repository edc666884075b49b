package arms

import (
	"math"
	"math/rand/v2"
	"testing"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/simulated"
	"fulcrum/reports/stats"
)

// Several seeds on clustered questions: the arms' interval counts clusters too.
func TestArmsCountClusters(t *testing.T) {
	const n, seeds = 200, 3
	sims, slack := simulated.Number(60, 2000)
	rate := func(known bool) float64 {
		return simulated.Share(sims, 9, func(rng *rand.Rand) bool {
			shared, clusters := simulated.Clustered(rng, n, 5, 0.5, true)
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
