package beamdata

import (
	"math"
	"testing"

	"fulcrum/internal/golden"
	"fulcrum/rewardutil/recorded"
)

// Rewards of several levels are the weighted sum for recorded and for sampled choices, on training
// sets only; validation keeps the plain reward.
func TestLevels(t *testing.T) {
	plain := loadOKVQA(t, nil)
	b := loadOKVQA(t, func(o *Options) {
		o.Reward.BeamWeight, o.Reward.CoherenceWeight, o.Reward.DiversityWeight, o.Reward.TaskWeight = 0.5, 0.3, 0.2, 0.1
	})
	for i := range 20 {
		for g := range b.Records.NumCandidates(i) {
			c, was := b.Records.Candidate(i, g), plain.Records.Candidate(i, g)
			pool := b.Records.Pool(i)
			query := b.Records.Table.Row(int(b.Records.Row(i)))
			x, y := b.Records.Table.Row(int(pool[c.Positions[0]])), b.Records.Table.Row(int(pool[c.Positions[1]]))
			coherence := (recorded.Cosine(query, x) + recorded.Cosine(query, y) + recorded.Cosine(x, y)) / 3
			want := 0.5*was.Reward + 0.3*coherence + 0.2*(1-recorded.Cosine(x, y)) + 0.1*was.AccScore
			golden.Close(t, []float64{c.Reward}, []float64{want}, 1e-12)
			sampled, accuracy := b.Records.Scorer.Score(i, c.Positions)
			// recorded to 6 digits
			golden.Close(t, []float64{sampled, accuracy, Reward(b.Records.Scorer, i, c.Positions)}, []float64{want, was.AccScore, sampled},
				1e-6)
		}
	}
	for i := range 20 {
		got, _ := b.Val.Scorer.Score(i, []int32{0, 1})
		want, _ := plain.Val.Scorer.Score(i, []int32{0, 1})
		if got != want {
			t.Errorf("validation reward %v, want the plain %v", got, want)
		}
	}
	if b.Fingerprint == plain.Fingerprint {
		t.Error("other rewards, same fingerprint")
	}
	if c := plain.RCE.Candidate(0, 0); c.Has&recorded.BeamScore == 0 || !math.IsNaN(recordedAccuracy(c.Trajectory)) {
		t.Error("a legacy beam has a score and no accuracy")
	}
}
