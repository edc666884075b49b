package preflight

import (
	"strings"
	"testing"

	"fulcrum/selector/pointer"
)

// sharp gives the rig a policy that is nearly sure of the most similar examples, which the records do not hold.
func (r *rig) sharp(t *testing.T) {
	opt, set := pointer.DefaultOptions(), r.stages[0].Source.(*pointer.Source).Set()
	opt.HiddenDim, opt.Skip.Enabled, opt.Skip.Scale, opt.Skip.LearnedScale = 16, true, 60, 0.5
	policy, err := pointer.New(opt, set.Table.Dim, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(policy.Free)
	policy.SetShots(2)
	r.trial.Policy = policy
}

// Candidates that are likelier than what the policy draws are not behind it: the finding still names a phase and its first step.
func TestTooFewStepsNamesAPhase(t *testing.T) {
	for _, reaches := range [][]reached{
		{{stage: Stage{Name: "rce", Epochs: 1}, Behind: -0.3, All: 0.01, First: "the first step of rce"}},
		{{stage: Stage{Name: "sft", Epochs: 1}, First: "the first step of sft"},
			{stage: Stage{Name: "rce", Epochs: 1}, All: 0.01, First: "the first step of rce"}},
	} {
		r := New(Checks(), 1)
		r.reaches = reaches
		r.tooFew(Trial{})
		if len(r.findings) != 1 || r.findings[0].Phase != "rce" || r.findings[0].Key != "rce.epochs" ||
			!strings.HasPrefix(r.findings[0].Message, "the first step of rce, and all steps") {
			t.Errorf("got %+v", r.findings)
		}
	}
}

// What a phase's steps can change together is held against what they would have to: each case changes the plan of one stage.
func TestReach(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plan  func(s []Stage, r *rig)
		want  string // phase and check; "" = nothing
		words []string
	}{
		{"enough steps", func([]Stage, *rig) {}, "", nil},
		{"two steps", func(s []Stage, r *rig) {
			for i := range s {
				s[i].Steps, s[i].Travel = 2, 1e-4
			}
		}, "rce too_few_steps", []string{"the first of 2 steps at rce.lr=0.001", "all steps of the schedule", "relation.scale="}},
		{"hopeless", func(s []Stage, r *rig) {
			for i := range s {
				s[i].Steps, s[i].Travel = 2, 1e-9
			}
		}, "rce too_few_steps", []string{"look at what the policy reads"}},
		{"a short warm-up", func(s []Stage, r *rig) { s[0].Steps, s[0].Travel = 2, 1e-4 }, "", nil},
		{"nothing in reach", func(s []Stage, r *rig) { s[0].Steps, s[0].Travel = 30, 0.015; r.stages = s[:2]; r.sharp(t) }, "rce too_few_steps",
			[]string{"nats less likely than what the policy chooses itself", "rce.epochs="}},
		{"a rate a million times too high", func(s []Stage, r *rig) { s[1].Rate = 1e3; r.stages = s[1:2]; r.sharp(t) }, "grpo step_too_large",
			[]string{"throws away", "grpo.lr="}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.trial.Scale = func() (string, float64, string) { return "selector.relation.scale", 20, "rows of length 1" }
			for i := range r.stages {
				s := &r.stages[i]
				s.Epochs, s.Steps, s.Rate, s.Travel = 10, 300, 1e-3, 0.15
			}
			tc.plan(r.stages, r)
			found := r.found(t)
			if tc.want == "" {
				if len(found) > 0 {
					t.Errorf("got %+v, want nothing", found)
				}
				return
			}
			if len(found) != 1 || found[0].Phase+" "+found[0].Check != tc.want {
				t.Fatalf("got %+v, want one %s", found, tc.want)
			}
			for _, w := range tc.words {
				if !strings.Contains(found[0].Message, w) {
					t.Errorf("%q lacks %q", found[0].Message, w)
				}
			}
		})
	}
}
