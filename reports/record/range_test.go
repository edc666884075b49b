package record

import (
	"math"
	"testing"
)

// The range of a metric is its formula's, unless a score says otherwise.
func TestBoundsOfScores(t *testing.T) {
	inf := math.Inf(1)
	for _, tc := range []struct {
		name string
		e    Evaluation
		want [2]float64
	}{
		{"accuracy", Evaluation{Metric: "accuracy", Scores: []float64{0, 1}}, [2]float64{0, 1}},
		{"on validation", Evaluation{Metric: "val_accuracy"}, [2]float64{0, 1}},
		{"pairs", Evaluation{Metric: "pair_accuracy"}, [2]float64{0, 1}},
		{"ROUGE", Evaluation{Metric: "rougeLsum", Scores: []float64{0.3}}, [2]float64{0, 1}},
		{"CIDEr", Evaluation{Metric: "cider", Scores: []float64{9}}, [2]float64{0, 10}},
		{"accuracy in percent", Evaluation{Metric: "accuracy", Scores: []float64{0, 60}}, [2]float64{-inf, inf}},
		{"a reward", Evaluation{Metric: "reward", Scores: []float64{0.5}}, [2]float64{-inf, inf}},
		{"a reward of known terms", Evaluation{Metric: "reward", Scores: []float64{0.5}, Range: &[2]float64{0, 1.5}}, [2]float64{0, 1.5}},
		{"a reward beyond them", Evaluation{Metric: "reward", Scores: []float64{2}, Range: &[2]float64{0, 1.5}}, [2]float64{-inf, inf}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			least, greatest := tc.e.Bounds()
			if got := [2]float64{least, greatest}; got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	percent := Evaluation{Metric: "accuracy", Scores: []float64{60}}
	if most := Most(Evaluation{Metric: "accuracy"}, percent); most != 0 {
		t.Errorf("a share and a percentage differ by at most %g", most)
	}
	if most := Most(Evaluation{Metric: "accuracy"}, Evaluation{Metric: "accuracy"}); most != 1 {
		t.Errorf("accuracies differ by at most %g", most)
	}
}
