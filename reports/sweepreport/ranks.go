package sweepreport

import (
	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
)

// explained returns η², the variance between groups over all variance, and the groups' means.
func explained(y []float64, group []int, groups int) (share float64, means []float64) {
	means = make([]float64, groups)
	count := make([]float64, groups)
	all := stat.Mean(y)
	total, between := 0.0, 0.0
	for i, g := range group {
		means[g] += y[i]
		count[g]++
		total += (y[i] - all) * (y[i] - all)
	}
	for g := range means {
		means[g] /= count[g]
		between += count[g] * (means[g] - all) * (means[g] - all)
	}
	return between / total, means
}

// chanceShare returns the share that n jobs in groups exceed in 1 of 20 sweeps when the groups are alike:
// Kruskal and Wallis's H is nearly χ² then.
func chanceShare(groups, n int) float64 {
	return min(1, distuv.ChiSquared{K: float64(groups - 1)}.Quantile(0.95)/float64(n-1))
}
