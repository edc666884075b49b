package beamdata

import (
	"math"
	"testing"
)

// The built-in set through Load: recorded rewards and accuracies are those of its scorer, splits are
// disjoint, and the bundle says that it is synthetic.
func TestShapesBundle(t *testing.T) {
	opt := DefaultOptions()
	opt.Shapes.TrainQueries, opt.Shapes.ReaderQuestions, opt.Shapes.ValQueries, opt.Shapes.DevQueries = 60, 40, 10, 10
	opt.Reward.Mode = "vqa_gt_prob"
	b, err := Load(opt)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Synthetic || b.Notice == "" || b.EvalName != "dev" || b.RCE.Len() != 60 || b.Online.Len() != 60 || b.Val.Len() != 10 ||
		b.Eval.Len() != 10 {
		t.Errorf("synthetic %v, %q, sizes %v", b.Synthetic, b.Notice, b.Counts)
	}
	for _, s := range []*Set{b.RCE, b.Records, b.Val, b.Eval} {
		for i := range s.Len() {
			for g := range s.NumCandidates(i) {
				c := s.Candidate(i, g)
				reward, accuracy := s.Scorer.Score(i, c.Positions)
				if math.Abs(reward-c.Reward) > 1e-8 {
					t.Fatalf("%s query %d candidate %d: scorer %v, recorded %v", s.Name, i, g, reward, c.Reward)
				}
				if s == b.Records && accuracy != c.AccScore {
					t.Fatalf("query %d candidate %d: accuracy %v, recorded %v", i, g, accuracy, c.AccScore)
				}
			}
			if b.Text(int(s.Row(i))) == "" {
				t.Error("no text")
			}
		}
	}
	if again, err := Load(opt); err != nil || again.Fingerprint != b.Fingerprint {
		t.Errorf("the set is not deterministic: %v", err)
	}
}
