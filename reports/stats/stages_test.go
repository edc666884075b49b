package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fulcrum/reports/page"
)

func TestStagesSpendTheLevelOnce(t *testing.T) {
	for most, want := range map[int][]int{3: {2, 3}, 4: {2, 4}, 5: {2, 3, 5}, 10: {2, 3, 5, 10}, 20: {2, 3, 5, 10, 20}} {
		if got := Stages(most); !slices.Equal(got, want) {
			t.Errorf("at most %d seeds: judged after %v, want %v", most, got, want)
		}
		sum := 0.0
		for i, n := range want {
			at, s := StageAt(n, most)
			if sum += s.Share; at != n || s.N != i+1 || s.Of != len(want) || s.Share <= 0 {
				t.Errorf("%d of %d seeds: %+v after %d", n, most, s, at)
			}
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Errorf("at most %d seeds: the stages spend %g of the level", most, sum)
		}
	}
	if at, s := StageAt(7, 10); at != 5 || s.N != 3 {
		t.Errorf("7 of 10 seeds are judged at %d, %v: want the stage before", at, s)
	}
	if at, _ := StageAt(1, 10); at != 0 {
		t.Errorf("one seed is judged at %d, want not yet", at)
	}
}

// A stage corrects p and verdict, not the interval, and says so.
func TestStageCorrectsTheVerdict(t *testing.T) {
	rng, scores := rand.New(rand.NewPCG(5, 6)), make([]float64, 200)
	for i := range scores {
		scores[i] = 0.25 + rng.NormFloat64()
	}
	compare := func(s Stage) Paired {
		p, err := PairedDifference(scores, make([]float64, len(scores)), nil, Correction{Stage: s}, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		Settle([]*Paired{&p})
		return p
	}
	_, early := StageAt(2, 10)
	alone, staged := compare(Stage{}), compare(early)
	if alone.Verdict != Better || staged.Verdict != NotSeparable || staged.Interval != alone.Interval ||
		staged.PHolm != min(1, alone.P/early.Share) {
		t.Errorf("alone %s %v, p %g; at a stage %s %v, p %g", alone.Verdict, alone.Interval, alone.PHolm, staged.Verdict, staged.Interval,
			staged.PHolm)
	}
	if got, want := staged.Remarks(), fmt.Sprintf("; p corrected for stage 1 of 4; not decided yet: stage 1 of 4 demands p < 0.0004 before "+
		"corrections, and it is %s", page.Sig(alone.P, 2)); got != want {
		t.Errorf("remarks %q, want %q", got, want)
	}
	if got, want := VerdictCell(staged), "not separable (stage 1 of 4)"; got != want {
		t.Errorf("cell %q, want %q", got, want)
	}
	staged.Stage.N = staged.Stage.Of
	if got, want := staged.Remarks(), "; p corrected for stage 4 of 4; corrected for its stages it stays open"; got != want {
		t.Errorf("remarks at the last stage %q, want %q", got, want)
	}
	if got, want := VerdictCell(staged), "not separable (stage 4 of 4)"; got != want {
		t.Errorf("cell at the last stage %q, want %q", got, want)
	}
}
