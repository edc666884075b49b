package group

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// Recorded by running the reference's compute_softmax_weights (float32).
func TestWeightsEqualTheReference(t *testing.T) {
	var g struct {
		Rows []struct {
			Rewards     []golden.Number
			Temperature float64
			Result      []golden.Number
		} `json:"compute_softmax_weights"`
	}
	golden.JSON(t, "../testdata/reward_utils.json", &g)
	if len(g.Rows) != 75 {
		t.Fatalf("%d golden rows, want 75", len(g.Rows))
	}
	skipped := 0
	for i, row := range g.Rows {
		r := golden.Narrow(golden.Floats(row.Rewards))
		if slices.ContainsFunc(r, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }) {
			skipped++ // NaN and infinite rewards are refused long before
			continue
		}
		if i == 44 || i == 74 {
			continue // r/τ is 1e16 and 1e8: the reference divides in float32 before it subtracts the largest
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			got, _ := Weights(r, nil, 1, len(r), row.Temperature, false)
			golden.Close(t, got, golden.Floats(row.Result), 1e-6) // float32 there
		})
	}
	if skipped != 15 {
		t.Errorf("%d rows skipped for non-finite rewards, want 15", skipped)
	}
}

func TestWeights(t *testing.T) {
	e := math.E
	for _, tc := range []struct {
		name     string
		rewards  []float64
		valid    []bool
		tau      float64
		relative bool
		want     []float64
		ess      float64
	}{
		{"equal rewards are uniform", []float64{3, 3, 3, 3}, nil, 0.5, false, []float64{.25, .25, .25, .25}, 4},
		{"one temperature apart", []float64{0, 2}, nil, 2, false, []float64{1 / (1 + e), e / (1 + e)}, 1 / ((1 + e*e) / ((1 + e) * (1 + e)))},
		{"huge rewards do not overflow", []float64{1e6, 0}, nil, 1, false, []float64{1, 0}, 1},
		{"a masked entry gets nothing", []float64{0, 99, 0}, []bool{true, false, true}, 1, false, []float64{.5, 0, .5}, 2},
		{"no entry at all", []float64{1, 2}, []bool{false, false}, 1, false, []float64{0, 0}, 0},
		{"temperature 0 is the best alone", []float64{1, 2, 2}, nil, 0, false, []float64{0, .5, .5}, 2},
		{"relative: equal rewards stay uniform", []float64{1, 1}, nil, 1, true, []float64{.5, .5}, 2},
		{"relative: so do those that differ by rounding", []float64{float64(float32(0.7)), 0.7}, nil, 1, true, []float64{.5, .5}, 2},
		{"relative: one candidate", []float64{1}, nil, 1, true, []float64{1}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, stats := Weights(tc.rewards, tc.valid, 1, len(tc.rewards), tc.tau, tc.relative)
			golden.Close(t, got, tc.want, 1e-15)
			golden.Close(t, []float64{stats.ESS}, []float64{tc.ess}, 1e-12)
		})
	}
}

func TestRelativeTemperatureIgnoresTheScale(t *testing.T) {
	r := []float64{0.3, 0.1, 0.9, 0.4}
	tiny := make([]float64, len(r))
	for i := range r {
		tiny[i] = r[i]*1e-7 + 5e-7
	}
	a, sa := Weights(r, nil, 1, 4, 0.7, true)
	b, sb := Weights(tiny, nil, 1, 4, 0.7, true)
	golden.Close(t, b, a, 1e-9)
	golden.Close(t, []float64{sb.ESS}, []float64{sa.ESS}, 1e-8)
	_, flat := Weights(tiny, nil, 1, 4, 0.7, false)
	if flat.ESS < 3.999996 {
		t.Errorf("absolute temperature on tiny rewards: effective size %v, want nearly 4 (uniform)", flat.ESS)
	}
}
