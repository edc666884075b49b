package measure

import (
	"encoding/json"
	"math"
	"testing"
)

func TestLargestDifference(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name      string
		got, want []float64
		largest   float64
	}{
		{"the largest, either sign", []float64{1, 2, 3}, []float64{1, 2.5, 2.75}, 0.5},
		{"another number of steps does not compare", []float64{1}, []float64{1, 2}, nan},
		{"nothing to compare with", nil, nil, nan},
		{"a loss that is no number", []float64{1, nan, 3}, []float64{1, 2, 3}, nan},
	} {
		got := largestDifference(tc.got, tc.want)
		if got != tc.largest && !(math.IsNaN(got) && math.IsNaN(tc.largest)) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.largest)
		}
	}
}

// TestGoldenLossesMove: losses that never change would compare with anything.
func TestGoldenLossesMove(t *testing.T) {
	var golden map[string][]float64
	if err := json.Unmarshal(goldenLosses, &golden); err != nil || len(golden) != 6 {
		t.Fatalf("%d cases (%v), want 6", len(golden), err)
	}
	for name, losses := range golden {
		least, most := losses[0], losses[0]
		for _, x := range losses {
			least, most = min(least, x), max(most, x)
		}
		if len(losses) != 15 || most-least < 100*lossTolerance {
			t.Errorf("%s: %d losses from %g to %g: want 15 that move", name, len(losses), least, most)
		}
	}
}
