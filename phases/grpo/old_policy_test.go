package grpo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// TestTheOldPolicySamples: the groups of online rollouts are those that the old policy draws, their ratios are exactly
// 1 right after it was refreshed, and no others are.
func TestTheOldPolicySamples(t *testing.T) {
	for _, tc := range []struct {
		old           string
		every, passes int
		fresh         []int // steps (from 0, 3 batches an epoch)
	}{
		{"batch", 1, 1, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"batch", 1, 2, []int{0, 2, 4, 6}},
		{"every_n", 2, 2, []int{0, 2, 4, 6}}, // the same
		{"every_n", 3, 1, []int{0, 3, 6}},
		{"every_n", 3, 2, []int{0, 4}}, // between batches only
		{"every_n", 1000, 1, []int{0}},
		{"epoch_start", 1, 1, []int{0, 3, 6}},
	} {
		t.Run(fmt.Sprintf("%s %d, %d passes", tc.old, tc.every, tc.passes), func(t *testing.T) {
			phase := tokenGRPO(func(o *Options) { o.OldPolicy, o.UpdateOldAfter, o.NumIterations = tc.old, tc.every, tc.passes })
			env := tokenEnv(t, nil, t.TempDir())
			if err := phase.Begin(env, 8); err != nil {
				t.Fatal(err)
			}
			defer phase.End()
			if own := phase.old.Policy == env.Policy; own != (tc.every <= tc.passes && tc.old != "epoch_start") {
				t.Errorf("the old policy is the policy itself: %v", own)
			}
			old := env.Policy.Clone()
			defer old.Free()
			for step := range 8 {
				fresh, pass := slices.Contains(tc.fresh, step), step%tc.passes
				if fresh {
					old.Params().CopyFrom(env.Policy.Params())
				}
				if step%(3*tc.passes) == 0 {
					phase.BeginEpoch(1 + step/3)
				}
				m, err := phasetest.Row(phase.Step(context.Background(), phases.At{Epoch: 1, Step: step, Pass: pass, Queries: []int{0, 1, 2}}))
				if err != nil {
					t.Fatal(err)
				}
				if (m["mean_ratio"] == 1.0) != fresh {
					t.Errorf("step %d: mean ratio %v, exactly 1 expected: %v", step, m["mean_ratio"], fresh)
				}
				want := old.Sample(phase.src, []int{0, 1, 2}, phase.opt.GroupSize, env.Data.Shots, 1, rng.Key(env.Seed, "rollout grpo", step-pass))
				if got := phase.rollout.batch; pass == 0 && !slices.Equal(got.Actions, want.Actions) {
					t.Errorf("step %d: the groups are not the old policy's", step)
				}
			}
		})
	}
}

// TestRatiosAreImportanceWeights: over samples of the old policy the mean ratio of whole sequences is 1, wherever the
// policy has gone. Over the policy's own samples it would be 1 + χ²(π ‖ π_old).
func TestRatiosAreImportanceWeights(t *testing.T) {
	phase := tokenGRPO(func(o *Options) {
		o.OldPolicy, o.Ratio, o.Loss, o.GroupSize, o.Advantage.MinStd = "every_n", "sequence", "grpo", 4000, 0.1
	})
	env := tokenEnv(t, nil, t.TempDir())
	if err := phase.Begin(env, 2); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	w := env.Policy.Params().Values()
	for i := range w {
		w[i] += 0.3 * float32(math.Sin(float64(i)))
	}
	phase.sinceOld = 1 // as after a step
	env.Policy.Params().SetValues(w)
	m, err := phasetest.Row(phase.Step(context.Background(), phases.At{Epoch: 1, Step: 1, Queries: []int{0, 1}}))
	if err != nil {
		t.Fatal(err)
	}
	if ratio := m["mean_ratio"].(float64); math.Abs(ratio-1) > 0.03 || ratio == 1 {
		t.Errorf("mean ratio %.4g of 8,000 sequences, want 1 within 0.03", ratio)
	}
	env.Policy.Params().SetValues(w)
	phase.old.Policy, w = env.Policy, phase.old.Params().Values() // the policy's own samples
	r, err := phase.Collect(context.Background(), phases.At{Epoch: 1, Step: 2, Queries: []int{0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	end := torchx.Scope()
	defer end()
	now := objective.Sequence(env.Policy.Forward(r.batch, selector.ForwardOptions{}).LogP).Floats()
	env.Policy.Params().SetValues(w)
	before := objective.Sequence(env.Policy.Forward(r.batch, selector.ForwardOptions{}).LogP).Floats()
	own := 0.0
	for i := range now {
		own += math.Exp(now[i]-before[i]) / float64(len(now))
	}
	if own < 1.2 {
		t.Errorf("mean ratio %.4g over the policy's own samples: the test could not tell who sampled", own)
	}
}

// TestOldPolicyResumeIsExact: an old policy that samples is part of what a state holds.
func TestOldPolicyResumeIsExact(t *testing.T) {
	phasetest.ResumesExactly(t, oldPolicyPlan, 3*(2+2*2), func(rec phases.Recorder,
		dir string) *phases.Env {
		return tokenEnv(t, rec, dir)
	})
}

// oldPolicyPlan refreshes the old policy at every second batch.
func oldPolicyPlan() phases.Plan {
	return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: phasetest.Nosy(),
		Phases: []phases.Phase{tokenRCE(nil), tokenGRPO(func(o *Options) {
			o.OldPolicy, o.UpdateOldAfter, o.NumIterations, o.MicroBatch, o.ZeroVariance = "every_n", 3, 2, new(3), "resample"
			o.KL.SyncSteps, o.KL.Reference = new(5), "init"
		})}}
}

// TestHealthyOldPolicies: runs whose old policy stays for several batches learn, and the doctor has nothing to say.
func TestHealthyOldPolicies(t *testing.T) {
	for _, tc := range []struct {
		old           string
		every, passes int
	}{{"every_n", 4, 1}, {"every_n", 10, 4}, {"epoch_start", 1, 1}, {"epoch_start", 1, 2}} {
		for _, ratio := range []string{"sequence", "token"} {
			t.Run(fmt.Sprintf("%s %d, %d passes, ratio=%s", tc.old, tc.every, tc.passes, ratio), func(t *testing.T) {
				rec := &phasetest.Memory{}
				env := tokenEnv(t, rec, t.TempDir())
				phase := tokenGRPO(func(o *Options) {
					o.Epochs, o.Ratio, o.Loss, o.OldPolicy, o.UpdateOldAfter, o.NumIterations = 12, ratio, "grpo", tc.old, tc.every, tc.passes
					o.KL.Controller, o.KL.TargetMax = "fixed", 10 // nats: ten toy answers are easily told apart
				})
				before, err := phases.Validate(nil, env.Initial, env.Initial, env.Data.Val, env.Data)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := phases.Run(context.Background(), phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
					Doctor: doctor.Checks(), Phases: []phases.Phase{phase}}, env, nil); err != nil {
					t.Fatal(err)
				}
				after, err := phases.Validate(nil, env.Policy, env.Initial, env.Data.Val, env.Data)
				if err != nil {
					t.Fatal(err)
				}
				if after.Reward < before.Reward+0.4 {
					t.Errorf("reward %.3f → %.3f: want a gain of at least 0.4", before.Reward, after.Reward)
				}
				for _, row := range rec.Rows {
					if strings.Contains(row, `"severity":"warning"`) {
						t.Error(row)
					}
				}
			})
		}
	}
}
