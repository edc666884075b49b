package recorded

import (
	"math/rand/v2"
	"testing"
)

// No reward of scores between 0 and 1 leaves the range of its mode, and both ends are reached.
func TestRangeHoldsRewards(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 29))
	ranged := 0
	for _, m := range modes() {
		o := DefaultOptions()
		o.Mode, o.Alpha, o.Beta, o.HardWeight, o.SoftWeight, o.RelWeight = m.name, 0.5, 0.5, 1.2, -0.4, 0.7
		least, greatest, ok := o.Range()
		if !ok {
			continue
		}
		ranged++
		low, high := greatest, least
		for range 2000 {
			score := func() float64 { return float64(random.IntN(3)) / 2 }
			var tr Trajectory
			tr.Set(Correct, score())
			tr.Set(AccScore, score())
			tr.Set(GTProb, score())
			tr.Set(RelScore, score())
			tr.Set(BeamScore, 40*random.NormFloat64())
			r, err := o.Reward(tr)
			if err != nil {
				t.Fatal(err)
			}
			low, high = min(low, r), max(high, r)
		}
		if low != least || high != greatest {
			t.Errorf("%s: rewards from %g to %g, range %g to %g", m.name, low, high, least, greatest)
		}
	}
	if ranged != 11 {
		t.Errorf("%d modes have a range, want all but beam_score", ranged)
	}
}
