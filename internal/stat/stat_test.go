package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"fulcrum/internal/testkit/golden"
)

// gonum is right up to the order in which it adds.
func TestStatisticsAgreeWithGonum(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		x := make([]float64, n)
		for i := range x {
			x[i] = random.NormFloat64()
		}
		before := slices.Clone(x)
		mean, se := MeanSE(x)
		wantMean, wantSD := stat.MeanStdDev(x, nil)
		if n < 2 {
			wantSD = math.NaN()
		}
		golden.Close(t, []float64{mean, Mean(x), SD(x), se}, []float64{wantMean, wantMean, wantSD, stat.StdErr(wantSD, float64(n))}, 1e-13)
		if n > 0 {
			sorted := slices.Sorted(slices.Values(x))
			golden.Close(t, []float64{Median(x), Middle(x)}, []float64{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n/2]}, 0)
		}
		if !slices.Equal(x, before) {
			t.Fatal("the values were sorted in place")
		}
	}
	golden.Close(t, []float64{Median(nil), Mean(nil), Sum(nil)}, []float64{math.NaN(), math.NaN(), 0}, 0)
}
