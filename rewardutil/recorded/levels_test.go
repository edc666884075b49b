package recorded

import (
	"fmt"
	"math"
	"testing"

	"fulcrum/internal/testkit/golden"
)

func TestSequenceLevels(t *testing.T) {
	x, y, d := []float32{2, 0}, []float32{0, 3}, []float32{1, 1}
	h := math.Sqrt2 / 2
	for _, tc := range []struct {
		name      string
		query     []float32
		examples  [][]float32
		coherence float64
		diversity float64
	}{
		{"one example like the query", x, [][]float32{x}, 1, 0},
		{"two copies of the query", x, [][]float32{x, x}, 1, 0},
		{"orthogonal examples", x, [][]float32{x, y}, 1. / 3, 1},
		{"a bridge between them is coherent", x, [][]float32{x, d, y}, (1 + h + 0 + h + h) / 5, 1 - (h+h+0)/3},
		{"out of order it is less so", x, [][]float32{d, x, y}, (h + 1 + 0 + h + 0) / 5, 1 - (h+h+0)/3},
		{"opposite examples", x, [][]float32{y, {0, -1}}, -1. / 3, 2},
		{"a zero vector", x, [][]float32{{0, 0}, x}, 1. / 3, 1},
		{"no examples", x, nil, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			golden.Close(t, []float64{Coherence(tc.query, tc.examples), Diversity(tc.examples)}, []float64{tc.coherence, tc.diversity}, 1e-12)
		})
	}
}

func TestCombine(t *testing.T) {
	o := DefaultOptions()
	l := Levels{Beam: 0.4, Coherence: 0.5, Diversity: 0.25, Task: 0.6}
	if got := o.Combine(l); got != 0.4 {
		t.Errorf("beam level alone by default: got %v", got)
	}
	o.Levels = map[string]float64{"coherence": 0.2, "diversity": -0.4, "task": 2}
	golden.Close(t, []float64{o.Combine(l)}, []float64{0.4 + 0.1 - 0.1 + 1.2}, 1e-15)
	l.Task = math.NaN()
	golden.Close(t, []float64{o.Combine(l)}, []float64{0.4}, 1e-15)
	if !o.UsesSequence() || DefaultOptions().UsesSequence() {
		t.Error("UsesSequence: want true with weights, false by default")
	}
}

func ExampleOptions_Reward() {
	var t Trajectory
	t.Set(Correct, 1)
	t.Set(AccScore, 0.6)
	r, _ := DefaultOptions().Reward(t)
	fmt.Println(r)
	// Output: 1.6
}
