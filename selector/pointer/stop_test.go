package pointer

import (
	"slices"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/testkit/golden"
	"fulcrum/selector"
)

// TestRecordedCandidatesEnd: with a budget of more shots than were recorded, every candidate ends with a scored Stop,
// unless its pool does.
func TestRecordedCandidatesEnd(t *testing.T) {
	for _, tc := range []struct {
		name   string
		shots  int // of the policy
		t, end int // steps of the batch, and of a candidate of query 0 (pool of 5)
		stops  bool
	}{
		{"no stop action", 0, 3, 3, false},
		{"the budget ends it", 3, 3, 3, false},
		{"fewer than the budget", 4, 4, 4, true},
		{"more than the budget", 2, 3, 3, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := scene(t, 12, 3)
			src.EndRecorded(tc.shots)
			b := src.Recorded([]int{0, 5})
			if got := b.Scored(0, 0); b.T != tc.t || len(got) != tc.end || (got[len(got)-1] == Stop) != tc.stops {
				t.Errorf("%d steps, candidate %v", b.T, got)
			}
		})
	}
	src := scene(t, 12, 5) // query 0 has 5 candidates: all are chosen
	src.EndRecorded(6)
	b := src.Recorded([]int{0, 1})
	if got := b.Scored(0, 0); len(got) != 5 || slices.Contains(got, Stop) {
		t.Errorf("the whole pool is chosen, then %v", got)
	}
	if got := actionsOf(b, 1, 0); got[5] != Stop {
		t.Errorf("5 of 8 are chosen, then %v", got)
	}
}

// TestReadersScoreAnyNumberOfPicks: selections of 1 to S picks that end early have the reader's own reward and accuracy.
func TestReadersScoreAnyNumberOfPicks(t *testing.T) {
	shapes := beamdata.DefaultOptions()
	shapes.Shapes.TrainQueries, shapes.Shapes.ReaderQuestions, shapes.Shapes.ValQueries, shapes.Shapes.DevQueries = 30, 20, 10, 0
	okvqa := beamdata.DefaultOptions()
	okvqa.Name, okvqa.MaxSamples = "okvqa", new(int)
	*okvqa.MaxSamples = 20
	for name, opt := range map[string]beamdata.Options{"shapes": shapes, "okvqa": okvqa} {
		t.Run(name, func(t *testing.T) {
			if opt.Name == "okvqa" {
				root := golden.Shared(t, "okvqa")
				opt.Root = &root
			}
			bundle, err := beamdata.Load(opt)
			if err != nil {
				t.Fatal(err)
			}
			set := bundle.Online
			src := NewSource(set)
			const shots = 4
			b := selector.NewBatch(src, []int{0, 1, 2, 3, 4, 5, 6, 7}, shots, shots)
			for i := range b.Queries {
				for g := range shots {
					actions := []int64{}
					for a := range int64(g + 1) {
						actions = append(actions, 2*a+1)
					}
					if len(actions) < shots {
						actions = append(actions, Stop)
					}
					b.Set(i, g, actions, 0)
				}
			}
			accuracy, err := src.Accuracy(b)
			if err != nil {
				t.Fatal(err)
			}
			different := 0
			for i, q := range b.Queries {
				for g := range shots {
					at := i*shots + g
					reward, acc := set.Scorer.Score(q, []int32{1, 3, 5, 7}[:g+1])
					if b.Rewards[at] != reward || accuracy[at] != acc {
						t.Errorf("query %d, %d picks: reward %g, accuracy %g, want %g, %g", q, g+1, b.Rewards[at], accuracy[at], reward,
							acc)
					}
					if g > 0 && reward != b.Rewards[at-1] {
						different++
					}
				}
			}
			if different == 0 {
				t.Error("the number of picks changes nothing")
			}
		})
	}
}
