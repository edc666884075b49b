package beamdata

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/rewardutil/recorded"
)

// Rewards of several levels are the weighted sum for recorded and for sampled choices, on training
// sets only; validation keeps the plain reward.
func TestLevels(t *testing.T) {
	plain := loadOKVQA(t, nil)
	b := loadOKVQA(t, func(o *Options) {
		o.Reward.Levels = map[string]float64{"beam": 0.5, "coherence": 0.3, "diversity": 0.2, "task": 0.1}
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
	if c := plain.RCE.Candidate(0, 0); c.Has != recorded.BeamScore {
		t.Error("a legacy beam has a score and no accuracy")
	}
	if n := b.Counts["candidate_without_task_level"] + b.Counts["query_without_task_level"]; n > 0 {
		t.Errorf("%d levels that the reader knows are missing", n)
	}
}

// TestUnknownTaskLevels: a task level that some candidates of a group lack is counted, and so are groups without any.
func TestUnknownTaskLevels(t *testing.T) {
	var lines []string
	for i := range 10 {
		known := [2]string{`,"vqa_acc_score":0.5`, `,"vqa_acc_score":0`}
		if i == 5 {
			known[1] = ""
		} else if i == 4 {
			known = [2]string{}
		}
		lines = append(lines, fmt.Sprintf(`"%d":{"candidate_pool_ids":[15,16],"pointer_candidates":[{"pointer":[15],"vqa_gt_prob":0.25%s},`+
			`{"pointer":[16],"vqa_gt_prob":0.25%s}]}`, i, known[0], known[1]))
	}
	text := "{" + strings.Join(lines, ",\n") + "}"
	load := func(weight float64) *Bundle {
		b, err := loadContent(t, text, func(o *Options) {
			o.Reward.Mode, o.Reward.Levels, o.TrainRatio = "vqa_gt_prob", map[string]float64{"task": weight}, 0.9
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if b := load(0); len(b.Skipped) > 0 {
		t.Errorf("nobody asks for task levels: %v", b.Skipped)
	}
	b := load(1)
	if b.Counts["candidate_without_task_level"] != 1 || b.Skipped["candidate_without_task_level"] != "query 5" ||
		b.Counts["query_without_task_level"] != 1 || b.Skipped["query_without_task_level"] != "query 4" {
		t.Errorf("counts %v at %v, validation %v", b.Counts, b.Skipped, b.Val.IDs)
	}
	lone := (b.Val.IDs[0] + 1) % 4 // its group is left with one candidate, which makes other groups than beams of the same file
	text = strings.Replace(text, fmt.Sprintf(`"%d":{"candidate_pool_ids":[15,16],"pointer_candidates":[{"pointer":[15]`, lone),
		fmt.Sprintf(`"%d":{"candidate_pool_ids":[%d,16],"pointer_candidates":[{"pointer":[%[2]d]`, lone, b.Val.IDs[0]), 1)
	if n := load(1).Counts; n["group_without_two_candidates"] != 1 || n["candidate_without_task_level"] != 1 ||
		n["query_without_task_level"] != 1 {
		t.Errorf("counts %v: what lacks a level counts once", n)
	}
	i := slices.Index(b.RCE.IDs, 5)
	if known, unknown := b.RCE.Candidate(i, 0).Reward, b.RCE.Candidate(i, 1).Reward; known != 0.75 || unknown != 0.25 {
		t.Errorf("rewards %v with and %v without a level", known, unknown)
	}
}
