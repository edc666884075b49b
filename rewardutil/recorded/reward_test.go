package recorded

import (
	"math"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

func trajectory(fields map[string]golden.Number) Trajectory {
	names := map[string]Field{
		"vqa_correct": Correct, "vqa_acc_score": AccScore, "vqa_gt_prob": GTProb,
		"vqa_rel_score": RelScore, "beam_score": BeamScore, "logprob_score": LogProb,
	}
	var t Trajectory
	for name, n := range fields {
		if !n.Null {
			t.Set(names[name], n.V)
		}
	}
	return t
}

// Recorded by running the reference's compute_reward_for_candidate on every mode, candidate and weight.
func TestRewardEqualsTheReference(t *testing.T) {
	var g struct {
		Rows []struct {
			Mode      string
			Candidate map[string]golden.Number
			Weights   map[string]any
			Result    golden.Number
			Error     string
		} `json:"compute_reward_for_candidate"`
	}
	golden.JSON(t, "../testdata/reward_utils.json", &g)
	if len(g.Rows) != 396 {
		t.Fatalf("%d golden rows, want 396", len(g.Rows))
	}
	for _, row := range g.Rows {
		o := DefaultOptions()
		o.Mode, o.NaNIsBest = row.Mode, true
		for k, v := range row.Weights {
			switch k {
			case "hard_weight":
				o.HardWeight = v.(float64)
			case "soft_weight":
				o.SoftWeight = v.(float64)
			case "rel_weight":
				o.RelWeight = v.(float64)
			case "alpha":
				o.Alpha = v.(float64)
			case "beta":
				o.Beta = v.(float64)
			case "correctness_mode":
				o.CorrectnessMode = v.(string)
			case "use_logprob":
				o.UseLogProb = v.(bool)
			default:
				t.Fatalf("golden weight %q is not read", k)
			}
		}
		got, err := o.Reward(trajectory(row.Candidate))
		if row.Error != "" {
			if err == nil {
				t.Errorf("%s: got %v, want an error", row.Mode, got)
			}
			continue
		}
		// 1e-15: the order of two products may differ from Python's
		if err != nil || math.Abs(got-row.Result.V) > 1e-15 {
			t.Errorf("%s %v %v: got %v (%v), want %v", row.Mode, row.Candidate, row.Weights, got, err, row.Result.V)
		}
	}
}

func TestRewardRefusals(t *testing.T) {
	var nan Trajectory
	nan.Set(AccScore, math.NaN())
	var inf, huge Trajectory
	inf.Set(Correct, math.Inf(1))
	huge.Set(BeamScore, -1e308)
	for _, tc := range []struct {
		name, mode string
		t          Trajectory
		want       string
	}{
		{"NaN is an error by default", "hard_plus_soft", nan, "is NaN: want finite"},
		{"infinity is not cut to the best reward", "hard_only", inf, "is +Inf: want finite"},
		{"NaN in a recorded number", "vqa_acc_score", nan, "is NaN"},
		{"a recorded number that overflows a mean", "beam_score", huge, "is -1e+308: want a number within ±1e+30"},
		{"a recorded number that is absent", "vqa_gt_prob", nan, "does not record it"},
		{"hybrid is refused with the list", "hybrid", Trajectory{}, "want one of hard_plus_soft, hard_plus_soft_v2"},
		{"a typo names the nearest", "hard_plus_sof", Trajectory{}, "did you mean hard_plus_soft?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := DefaultOptions()
			o.Mode = tc.mode
			_, err := o.Reward(tc.t)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestRewardRecordedNumbersAreNotCut(t *testing.T) {
	var tr Trajectory
	tr.Set(BeamScore, -23.5) // a log-probability as beam score
	o := DefaultOptions()
	o.Mode = "beam_score"
	if r, err := o.Reward(tr); r != -23.5 || err != nil {
		t.Fatalf("got %v, %v, want -23.5", r, err)
	}
}

func TestRewardOptionsValidate(t *testing.T) {
	if err := DefaultOptions().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, mode := range Modes() {
		o := DefaultOptions()
		o.Mode, o.Alpha = mode, 1
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	bad := Options{Mode: "hybrid", CorrectnessMode: "02", Levels: map[string]float64{"task": 1, "tsak": 1}}
	err := bad.Validate()
	for _, want := range []string{"mode: hybrid", "correctness_mode: want one of 01, pm1", "levels.tsak: want one of beam"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to contain %q", err, want)
		}
	}
	silent := DefaultOptions()
	silent.Levels = map[string]float64{BeamLevel: 0}
	if err := silent.Validate(); err == nil || !strings.Contains(err.Error(), "levels.beam: all levels weigh 0") {
		t.Errorf("a reward without a weight: %v", err)
	}
	legacy := DefaultOptions()
	legacy.Mode = "legacy"
	if legacy.Validate() == nil {
		t.Error("legacy with alpha = beta = 0 passes; every reward would be 0")
	}
}

// Every mode gives a finite number for a full trajectory, the same each time, cut to ±5 where it is a formula, and a score
// that it wants and does not find is named.
func TestModesConform(t *testing.T) {
	scores := map[Field]float64{Correct: 1, AccScore: 0.6, GTProb: 0.3, RelScore: 0.5, BeamScore: -2, LogProb: -3}
	for _, m := range modes() {
		o := DefaultOptions()
		o.Mode, o.Alpha, o.Beta = m.name, 1, 1
		var full, none Trajectory
		for f, v := range scores {
			full.Set(f, v)
		}
		r, err := o.Reward(full)
		again, _ := o.Reward(full)
		if err != nil || math.IsNaN(r) || r != again || o.Missing(full) != "" {
			t.Errorf("%s: got %v, then %v (%v), missing %q", m.name, r, again, err, o.Missing(full))
		}
		o.HardWeight, o.SoftWeight, o.Alpha = 1e6, 1e6, 1e6
		if r, err = o.Reward(full); err != nil || m.number == 0 && math.Abs(r) != rewardLimit {
			t.Errorf("%s with huge weights: got %v (%v), want ±%v", m.name, r, err, rewardLimit)
		}
		if _, err := o.Reward(none); (err == nil) == (o.Missing(none) == "") {
			t.Errorf("%s without scores: missing %q, error %v: want one of them", m.name, o.Missing(none), err)
		}
	}
}
