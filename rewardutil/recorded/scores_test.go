package recorded

import (
	"math"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

func TestRecordedScores(t *testing.T) {
	var r Scores
	r.Follow(1, []float64{3, 2, 1}, []float64{0.2, 0.9, 0.1})            // the second best first: 2 of 3 pairs
	r.Follow(2, []float64{1, 1, 0}, []float64{1, 0, 0})                  // a tie for the first place
	r.Follow(3, []float64{1, 2}, []float64{0.5, 0.5})                    // nothing to put in order
	r.Follow(4, []float64{1}, []float64{1})                              // nothing to choose
	r.Draw(5, []float64{math.Log(0.3), math.Log(0.1)}, []float64{1, -1}) // 3/4 and 1/4
	if !slices.Equal(r.IDs, []int64{1, 2, 3, 5}) || !slices.Equal(r.OrderedIDs, []int64{1, 2, 5}) {
		t.Fatalf("queries %v, ordered %v", r.IDs, r.OrderedIDs)
	}
	golden.Close(t, r.Reward, []float64{0.2, 0.5, 0.5, 0.5}, 1e-15)
	golden.Close(t, r.Top1, []float64{0, 0.5, 1}, 0)
	golden.Close(t, r.Pairs, []float64{2.0 / 3, 0.75, 1}, 1e-15)
	means := r.Means()
	golden.Close(t, []float64{means["recorded_reward"], means["top1_accuracy"], means["pair_accuracy"]},
		[]float64{0.425, 0.5, (2.0/3 + 1.75) / 3}, 1e-15)
	r.Draw(6, []float64{math.NaN(), 0}, []float64{1, 0}) // compat goes on after NaN: then nothing is said
	if len(r.Means()) != 0 {
		t.Errorf("means %v of scores with a NaN", r.Means())
	}
}
