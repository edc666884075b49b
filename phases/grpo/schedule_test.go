package grpo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"fulcrum/internal/option"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/objective"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// toyPlan has every phase and every kind of state: dropout, an old policy of its own, adaptive β, two
// passes over a rollout.
func toyPlan(train *pointer.Source) phases.Plan {
	sched := schedule.DefaultLROptions()
	rceOpt := rce.DefaultOptions()
	rceOpt.Epochs, rceOpt.LR = 2, 1e-3
	sft := rce.DefaultSFTOptions()
	sft.Epochs, sft.LR = 1, 1e-3
	grpo := DefaultOptions()
	grpo.Epochs, grpo.LR, grpo.OldPolicy = 3, 3e-3, "epoch_start"
	grpo.Curriculum = advantage.CurriculumOptions{EarlyEpochs: 1, EarlyTopK: 3, Baseline: "group"}
	grpo.Temperature.Enabled = true
	online := DefaultOptions()
	online.Rollout, online.OldPolicy, online.NumIterations, online.Epochs, online.LR = "online", "batch", 2, 2, 3e-3
	online.KL.Controller = "proportional"
	return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: phasetest.Nosy(), Phases: []phases.Phase{
		rce.NewSFT(sft, phases.DefaultOptimOptions(), sched, train, 16, 0.1),
		rce.New(rceOpt, phases.DefaultOptimOptions(), sched, train, 16, 0.1),
		New("grpo", grpo, phases.DefaultOptimOptions(), sched, train, 16),
		New("grpo_online", online, phases.DefaultOptimOptions(), sched, train, 16),
	}}
}

// TestInterruptedBetweenEpochs: a stop that comes when an epoch has ended without a checkpoint, or before
// the very first step, saves a state too, and the resume from it is exact.
func TestInterruptedBetweenEpochs(t *testing.T) {
	train, val := phasetest.Toy(t)
	plan := func() phases.Plan {
		rceOpt, grpo := rce.DefaultOptions(), DefaultOptions()
		rceOpt.Epochs, rceOpt.LR = 4, 1e-3
		grpo.Epochs, grpo.LR, grpo.OldPolicy, grpo.KL.Reference = 4, 3e-3, "epoch_start", "epoch_start"
		p := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: phasetest.Nosy(), Phases: []phases.Phase{
			rce.New(rceOpt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0),
			New("grpo", grpo, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
		p.Checkpoint.EveryEpochs, p.Checkpoint.Best.Metric = 3, new("val_kl") // the start stays best
		return p
	}
	whole, dir := &phasetest.Memory{}, t.TempDir()
	if _, err := phases.Run(context.Background(), plan(), phasetest.ToyEnv(t, val, whole, dir), nil); err != nil {
		t.Fatal(err)
	}
	want := phasetest.Files(t, dir)
	if _, ok := want["checkpoints/rce_epoch2.safetensors"]; ok {
		t.Fatal("every epoch has a checkpoint: this test sees nothing")
	}
	for _, after := range []string{"eval init", "epoch rce 1 ", "epoch rce 2 ", "epoch rce 3 ", "epoch rce 4 ", "epoch grpo 1 ",
		"epoch grpo 2 "} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		rec := &phasetest.Memory{StopAfter: after, Stop: cancel}
		_, err := phases.Run(ctx, plan(), phasetest.ToyEnv(t, val, rec, dir), nil)
		cancel()
		saved, stateErr := phases.FindState(dir)
		if !errors.Is(err, phases.ErrInterrupted) || stateErr != nil || saved == nil {
			t.Fatalf("stopped after %q: %v; state %v, %v", after, err, saved, stateErr)
		}
		if last := rec.Rows[saved.Rows()-1]; !strings.HasPrefix(last, after) && !strings.HasPrefix(last, "eval ") &&
			!strings.HasPrefix(last, "event ") {
			t.Errorf("stopped after %q, the state is of %q", after, last)
		}
		rec.StopAfter, rec.Rows, rec.Evals = "", rec.Rows[:saved.Rows()], rec.Evals[:saved.Evals()]
		env := phasetest.ToyEnv(t, val, rec, dir)
		env.Policy.Params().SetValues(make([]float32, env.Policy.Params().Numel()))
		if _, err := phases.Run(context.Background(), plan(), env, saved); err != nil {
			t.Fatalf("resumed after %q: %v", after, err)
		}
		if !reflect.DeepEqual(rec.Rows, whole.Rows) || !reflect.DeepEqual(rec.Evals, whole.Evals) {
			t.Errorf("resumed after %q: the rows differ", after)
		}
		if got := phasetest.Files(t, dir); !reflect.DeepEqual(got, want) {
			t.Errorf("resumed after %q: the checkpoints differ", after)
		}
	}
}

// TestResumeIsExact: plans of every kind of state go on exactly where they were stopped.
func TestResumeIsExact(t *testing.T) {
	train, val := phasetest.Toy(t)
	for _, tc := range []struct {
		name  string
		plan  func() phases.Plan
		steps int
	}{
		{"every phase", func() phases.Plan { return toyPlan(train) }, 3 * (1 + 2 + 3 + 2*2)},
		{"constant policies", func() phases.Plan { return constantPlan(train) }, 3 * (2 + 2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			phasetest.ResumesExactly(t, tc.plan, tc.steps, func(rec phases.Recorder, dir string) *phases.Env {
				return phasetest.ToyEnv(t, val, rec, dir)
			})
		})
	}
}

// TestResumeChoosesAlike: a resumed run compares its epochs with the same scores, of the run's highest and of the phase's, by the
// metric that the run began with.
func TestResumeChoosesAlike(t *testing.T) {
	train, val := phasetest.Toy(t)
	plan := func() phases.Plan {
		p := toyPlan(train)
		p.Checkpoint.RestoreBest = true
		return p
	}
	unscored := *val.Set()
	unscored.Scorer = nil
	rows := phasetest.Resumes(t, plan, 3*(1+2+3+2*2), func(rec phases.Recorder, dir string) *phases.Env {
		env := phasetest.ToyEnv(t, pointer.NewSource(&unscored), rec, dir)
		env.Data.Eval = nil
		return env
	}).Rows
	if all := strings.Join(rows, "\n"); !strings.Contains(all, "val_paired_error") || !strings.Contains(all, "val_recorded_reward") {
		t.Errorf("no epoch is compared by its recorded reward: this test sees nothing:\n%s", all)
	}
}

// TestEveryMetricIsPaired: each metric that chooses by questions has the paired error of its own scores.
func TestEveryMetricIsPaired(t *testing.T) {
	train, val := phasetest.Toy(t)
	for _, metric := range []string{"val_reward", "val_loss", "val_advantage"} {
		plan := toyPlan(train)
		plan.Checkpoint.Best.Metric = new(metric)
		rec := &phasetest.Memory{}
		if _, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, rec, t.TempDir()), nil); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(rec.Rows, "\n"), "val_paired_error") {
			t.Errorf("%s: no epoch has a paired error", metric)
		}
	}
}

// TestLookingAheadChangesNothing: runs that launch a step, or sample for it, before they read the numbers of the one before, stopped and
// resumed, end with the bytes of one that does not look ahead.
func TestLookingAheadChangesNothing(t *testing.T) {
	train, val := phasetest.Toy(t)
	ofToys := func(rec phases.Recorder, dir string) *phases.Env { return phasetest.ToyEnv(t, val, rec, dir) }
	ofTokens := func(rec phases.Recorder, dir string) *phases.Env { return tokenEnv(t, rec, dir) }
	for _, tc := range []struct {
		name  string
		plan  func() phases.Plan
		steps int
		env   func(phases.Recorder, string) *phases.Env
	}{
		{"recorded", func() phases.Plan { return constantPlan(train) }, 3 * (2 + 2), ofToys},
		{"sampled", tokenPlan, 3 * (1 + 2 + 2*4), ofTokens},
		{"sampled by an old policy", oldPolicyPlan, 3 * (2 + 2*2), ofTokens},
		{"every number moves the next step", movingPlan, 3 * (2 + 2), ofTokens},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ahead := 0
			phasetest.ResumesExactly(t, tc.plan, tc.steps, func(rec phases.Recorder, dir string) *phases.Env {
				env := tc.env(rec, dir)
				env.LookAhead = ahead > 0 // the first run is what the others are compared with
				ahead++
				return env
			})
			if ahead < 3 {
				t.Errorf("%d runs, want some that look ahead", ahead-1)
			}
		})
	}
}

// movingPlan has a KL coefficient and a reference that move with each step.
func movingPlan() phases.Plan {
	return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: phasetest.Nosy(), Phases: []phases.Phase{
		tokenRCE(nil),
		tokenGRPO(func(o *Options) {
			o.OldPolicy = "batch"
			o.KL.Beta, o.KL.Controller, o.KL.Update, o.KL.SyncSteps = 0.1, "proportional", "step", new(1)
		})}}
}

// constantPlan has old and reference policies that are evaluated once, distributions included.
func constantPlan(train *pointer.Source) phases.Plan {
	rceOpt, grpo := rce.DefaultOptions(), DefaultOptions()
	rceOpt.Epochs, grpo.Epochs, grpo.LR = 2, 2, 3e-3
	grpo.OldPolicy, grpo.KL.Reference, grpo.Freeze = "phase_start", "init", []string{"query_proj"}
	sched := schedule.DefaultLROptions()
	return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: phasetest.Nosy(), Phases: []phases.Phase{
		rce.New(rceOpt, phases.DefaultOptimOptions(), sched, train, 16, 0), New("grpo", grpo, phases.DefaultOptimOptions(), sched, train, 16)}}
}

// TestPhasesLearn: on data whose reward hides in one coordinate, rce and offline grpo raise the held-out
// reward of the greedy selection a little and online grpo a lot.
func TestPhasesLearn(t *testing.T) {
	train, val := phasetest.Toy(t)
	sched := schedule.DefaultLROptions()
	online := DefaultOptions()
	online.Rollout, online.OldPolicy, online.Epochs, online.LR, online.KL.Beta = "online", "batch", 40, 1e-2, 0
	offline := DefaultOptions()
	offline.Epochs, offline.LR, offline.KL.Beta = 20, 1e-2, 0
	rceOpt := rce.DefaultOptions()
	rceOpt.Epochs, rceOpt.LR = 60, 1e-2
	for _, tc := range []struct {
		name  string
		phase phases.Phase
		gain  float64 // rce: 0.010 in the mean over seeds, 0 to 0.034
	}{
		{"rce", rce.New(rceOpt, phases.DefaultOptimOptions(), sched, train, 16, 0), 0.005},
		{"offline grpo", New("grpo", offline, phases.DefaultOptimOptions(), sched, train, 16), 0.01},
		{"online grpo", New("grpo_online", online, phases.DefaultOptimOptions(), sched, train, 16), 0.1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
			before, err := phases.Validate(nil, env.Initial, env.Initial, val, env.Data)
			if err != nil {
				t.Fatal(err)
			}
			plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Phases: []phases.Phase{tc.phase}}
			plan.Checkpoint.Best.Highest = true // this is about what is learnt, not about the noise of a few queries
			if _, err := phases.Run(context.Background(), plan, env, nil); err != nil {
				t.Fatal(err)
			}
			after, err := phases.Validate(nil, env.Policy, env.Initial, val, env.Data)
			if err != nil {
				t.Fatal(err)
			}
			if after.Reward < before.Reward+tc.gain {
				t.Errorf("validation reward %.4f → %.4f, want a gain of at least %.2f", before.Reward, after.Reward, tc.gain)
			}
			if before.KL != 0 || after.KL <= 0 {
				t.Errorf("KL %.4g → %.4g, want 0 → positive", before.KL, after.KL)
			}
		})
	}
}

// TestRatioIsOneAfterARefresh runs every kind of old policy with dropout configured: the step checks
// itself that the first ratios are exactly 1; here the recorded mean must be, and later ones must not.
func TestRatioIsOneAfterARefresh(t *testing.T) {
	train, val := phasetest.Toy(t)
	for _, tc := range []struct {
		old   string
		every int
		ones  map[int]bool // steps (1-based, 3 an epoch) with ratio exactly 1
	}{
		{"phase_start", 1, map[int]bool{1: true}},
		{"epoch_start", 1, map[int]bool{1: true, 4: true}},
		{"every_n", 2, map[int]bool{1: true, 3: true, 5: true}},
		{"batch", 1, map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true}},
	} {
		t.Run(tc.old, func(t *testing.T) {
			opt := DefaultOptions()
			opt.Epochs, opt.LR, opt.OldPolicy, opt.UpdateOldAfter = 2, 1e-2, tc.old, tc.every
			rec := &phasetest.Memory{}
			phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 16)
			if _, err := phases.Run(context.Background(), phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Phases: []phases.Phase{phase}},
				phasetest.ToyEnv(t, val, rec, t.TempDir()), nil); err != nil {
				t.Fatal(err)
			}
			step := 0
			for _, row := range rec.Rows {
				if !strings.HasPrefix(row, "step ") {
					continue
				}
				step++
				var m struct {
					MeanRatio float64 `json:"mean_ratio"`
				}
				if err := json.Unmarshal([]byte(row[strings.Index(row, "{"):]), &m); err != nil {
					t.Fatal(err)
				}
				if (m.MeanRatio == 1) != tc.ones[step] {
					t.Errorf("step %d: mean ratio %.9g, exactly 1 expected: %v", step, m.MeanRatio, tc.ones[step])
				}
			}
			if step != 6 {
				t.Errorf("%d steps, want 6", step)
			}
		})
	}
}

// TestObjectives compares the tensor formulas with their definitions in float64.
func TestObjectives(t *testing.T) {
	torchx.Attach(1)
	defer torchx.Scope()()
	ratio := []float64{1, 1.5, 0.5, 1.1}
	adv := []float64{2, 1, -1, -3}
	valid := []float64{1, 1, 1, 0}
	want := -(math.Min(2, 2) + math.Min(1.5, 1.2) + math.Min(-0.5, -0.8)) / 3
	got := surrogate(torchx.From(ratio, 2, 2), torchx.From(adv, 2, 2), torchx.From(valid, 2, 2), 0.2, 0.2, factor(-1.0/3)).Item()
	golden.Close(t, []float64{got}, []float64{want}, 1e-12)
	high := surrogate(torchx.From(ratio, 2, 2), torchx.From(adv, 2, 2), torchx.From(valid, 2, 2), 0.2, 0.4, factor(-1.0/3)).Item()
	golden.Close(t, []float64{high}, []float64{-(2 + 1.4 - 0.8) / 3}, 1e-12)

	r := []float64{0.3, -1.2, 30}
	for _, tc := range []struct {
		estimator string
		f         func(float64) float64
	}{
		{"k1", func(r float64) float64 { return r }},
		{"k2", func(r float64) float64 { return r * r / 2 }},
		{"k3", func(r float64) float64 { r = math.Min(r, 20); return math.Exp(-r) - 1 + r }},
		{"k3_reversed", func(r float64) float64 { r = math.Min(r, 20); return math.Exp(r) - 1 - r }},
	} {
		want := make([]float64, len(r))
		for i := range r {
			want[i] = tc.f(r[i])
		}
		e, err := option.Choose("kl.estimator", tc.estimator, Estimators(), Estimator.named)
		if err != nil {
			t.Fatal(err)
		}
		golden.Close(t, e.Sampled(torchx.From(r, 3), 20).Floats(), want, 1e-12)
	}

	p, q := []float64{0.7, 0.2, 0.1, 0}, []float64{0.25, 0.25, 0.5, 0}
	logs := func(x []float64) torchx.Tensor {
		out := make([]float64, len(x))
		for i := range x {
			out[i] = -1e9 // as an excluded action
			if x[i] > 0 {
				out[i] = math.Log(x[i])
			}
		}
		return torchx.From(out, 1, 1, 1, len(x))
	}
	mask := torchx.From([]float64{1}, 1, 1, 1)
	klWant := 0.7*math.Log(0.7/0.25) + 0.2*math.Log(0.2/0.25) + 0.1*math.Log(0.1/0.5)
	one := &selector.Batch{Mask: []float32{1}, Queries: []int{0}, G: 1, T: 1}
	kl := func(p, q []float64) []float64 {
		out := torchx.PickLogp(torchx.Squeeze(logs(p), 1), torchx.From([]int64{0}, 1, 1, 1), -1e9, logs(q))
		return objective.MaskedSum(out.KL, one).Floats()
	}
	golden.Close(t, kl(p, q), []float64{klWant}, 1e-12)
	golden.Close(t, kl(p, p), []float64{0}, 1e-15)
	entropyWant := -(0.7*math.Log(0.7) + 0.2*math.Log(0.2) + 0.1*math.Log(0.1))
	golden.Close(t, []float64{entropy(logs(p), mask, factor(1)).Item()}, []float64{entropyWant}, 1e-12)

	out := selector.Output{LogP: torchx.From([]float64{math.Log(0.2)}, 1, 1, 1), Dist: logs(p)}
	smooth := -(0.9*math.Log(0.2) + 0.1*(math.Log(0.7)+math.Log(0.2)+math.Log(0.1))/3)
	golden.Close(t, objective.CrossEntropy(out, one, 0.1).Floats(), []float64{smooth}, 1e-12)
	golden.Close(t, objective.CrossEntropy(out, one, 0).Floats(), []float64{-math.Log(0.2)}, 1e-12)
}

// TestNonFiniteStopsBeforeTheWeights: a NaN reward ends the step with one line and the weights as they were.
func TestNonFiniteStopsBeforeTheWeights(t *testing.T) {
	train, val := phasetest.Toy(t)
	env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
	opt := DefaultOptions()
	phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), poisoned{train}, 16)
	if err := phase.Begin(env, 10); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	before := env.Policy.Params().Values()
	_, err := phase.Step(context.Background(), phases.At{Epoch: 1, Queries: []int{0, 1, 2}})
	if err == nil || !strings.Contains(err.Error(), "candidate 0 of its group has reward NaN") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line about the reward", err)
	}
	if !reflect.DeepEqual(before, env.Policy.Params().Values()) {
		t.Error("the weights changed")
	}
}

// poisoned returns batches with a NaN reward.
type poisoned struct{ *pointer.Source }

func (p poisoned) Recorded(queries []int) *selector.Batch {
	b := p.Source.Recorded(queries)
	b.Rewards[0] = math.NaN()
	return b
}

// TestKeepAndPatience: old checkpoints go, the start, the best and the newest stay, and a phase without
// progress ends early.
func TestKeepAndPatience(t *testing.T) {
	train, val := phasetest.Toy(t)
	rceOpt := rce.DefaultOptions()
	rceOpt.Epochs, rceOpt.LR = 30, 1e-9 // nothing moves: epoch 0 stays best
	plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
		Phases: []phases.Phase{rce.New(rceOpt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0)}}
	plan.Checkpoint.Keep, plan.Checkpoint.PatienceEpochs = new(2), new(4)
	opt := phases.DefaultOptimOptions()
	opt.WeightDecay = 0
	rec, dir := &phasetest.Memory{}, t.TempDir()
	result, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, rec, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.BestPhase != "init" {
		t.Errorf("best is %s epoch %d, want the initial policy", result.BestPhase, result.BestEpoch)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	want := []string{"best.safetensors", "init_epoch0.safetensors", "last.safetensors", "rce_epoch3.safetensors", "rce_epoch3.state",
		"rce_epoch4.safetensors", "rce_epoch4.state"}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("checkpoints %v, want %v", names, want)
	}
	if !strings.Contains(strings.Join(rec.Rows, "\n"), "early_stop") {
		t.Error("no event says that the phase ended early")
	}
}

// TestUnknownMetricStopsBeforeTraining: a deciding metric that the data does not give is refused by the
// initial policy's validation, by name.
func TestUnknownMetricStopsBeforeTraining(t *testing.T) {
	train, val := phasetest.Toy(t) // its scorer knows no accuracy
	plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
		Phases: []phases.Phase{rce.New(rce.DefaultOptions(), phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0)}}
	plan.Checkpoint.Best.Metric = new("val_accuracy")
	rec := &phasetest.Memory{}
	_, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, rec, t.TempDir()), nil)
	var unknown *phases.MetricError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "val_accuracy") || !strings.Contains(err.Error(), "val_reward") ||
		len(rec.Rows) != 0 {
		t.Errorf("error %v after %d rows, want a MetricError that names what there is, before any", err, len(rec.Rows))
	}
}

// TestBestOutsideKL: where only the initial policy is within kl_max, a warning says so; evaluations name
// the policy that their KL is measured against.
func TestBestOutsideKL(t *testing.T) {
	train, val := phasetest.Toy(t)
	grpo := DefaultOptions()
	grpo.Epochs, grpo.LR, grpo.KL.Reference = 2, 1e-2, "phase_start"
	for _, tc := range []struct {
		klMax float64
		warns bool
	}{{1e-12, true}, {1e6, false}} {
		plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
			Phases: []phases.Phase{New("grpo", grpo, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
		plan.Checkpoint.Best.KLMax = &tc.klMax
		rec := &phasetest.Memory{}
		r, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, rec, t.TempDir()), nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.Join(rec.Rows, "\n")
		if got := len(r.Warnings) == 1 && strings.Contains(rows, "best_outside_kl"); got != tc.warns || tc.warns &&
			(r.BestPhase != "init" || !strings.Contains(r.Warnings[0], "best is the initial policy")) {
			t.Errorf("kl_max %g: best %s, warnings %q; want a warning: %v", tc.klMax, r.BestPhase, r.Warnings, tc.warns)
		}
		for policy, reference := range map[string]string{"init": "init", "grpo": "phase_start", "best": "init"} {
			if n := strings.Count(rows, fmt.Sprintf(`"kl_reference":%q,"loss":`, reference)); n == 0 ||
				!strings.Contains(rows, fmt.Sprintf(`"policy":%q`, policy)) {
				t.Errorf("no evaluation of %s says that its KL is against %s", policy, reference)
			}
		}
	}
}

// TestBetaOnItsBoundIsReported: a coefficient that wants to leave its bounds is an event that names the keys.
func TestBetaOnItsBoundIsReported(t *testing.T) {
	train, val := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.Epochs, opt.LR = 2, 1e-2
	opt.KL.TargetMin, opt.KL.TargetMax, opt.KL.BetaMax = 0, 1e-9, 0.1 // any movement is too much, and 0.1 is the most
	rec := &phasetest.Memory{}
	phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)
	if _, err := phases.Run(context.Background(), phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: doctor.Checks(),
		Phases: []phases.Phase{phase}}, phasetest.ToyEnv(t, val, rec, t.TempDir()), nil); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, row := range rec.Rows {
		if strings.HasPrefix(row, "event ") && strings.Contains(row, `"beta_at_bound"`) && strings.Contains(row, "grpo.kl.beta_max") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d warnings in a phase, want 1:\n%s", found, strings.Join(rec.Rows, "\n"))
	}
}

// TestRestoreBest: a phase hands on its best epoch, here the one nearest the start, and its evaluation is of that one.
func TestRestoreBest(t *testing.T) {
	train, val := phasetest.Toy(t)
	rceOpt, grpo := rce.DefaultOptions(), DefaultOptions()
	rceOpt.Epochs, rceOpt.LR, grpo.Epochs, grpo.LR = 3, 1e-2, 1, 1e-30 // GRPO leaves the weights as it finds them
	optim := phases.DefaultOptimOptions()
	optim.WeightDecay = 0
	sched := schedule.DefaultLROptions()
	plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
		Phases: []phases.Phase{rce.New(rceOpt, optim, sched, train, 16, 0), New("grpo", grpo, optim, sched, train, 16)}}
	plan.Checkpoint.RestoreBest, plan.Checkpoint.Best.Metric = true, new("val_kl")
	plan.Checkpoint.Keep = new(1)
	rec, dir := &phasetest.Memory{}, t.TempDir()
	if _, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, rec, dir), nil); err != nil {
		t.Fatal(err)
	}
	weights := func(name string) map[string][]float32 {
		f, err := tensorfile.ReadSafetensors(filepath.Join(dir, "checkpoints", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		out := map[string][]float32{}
		for _, w := range f.Tensors {
			values, err := w.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			out[w.Name] = slices.Clone(values) // the file is unmapped on return
		}
		return out
	}
	if !reflect.DeepEqual(weights("rce_epoch1.safetensors"), weights("grpo_epoch1.safetensors")) {
		t.Error("grpo did not start from rce's best epoch, the first")
	}
	if all := strings.Join(rec.Rows, "\n"); !strings.Contains(all, "rce hands on its epoch 1") {
		t.Error("no note says which epoch was handed on")
	}
	// What restore_best hands on was chosen on val, as best was; its scores say from how many. Held-out ones were not.
	for prefix, want := range map[string]string{"{val rce rce 1 reward 2 ": " 4}", "{val best ": " 5}", "{dev rce rce 1 reward 2 ": " 0}"} {
		at := slices.IndexFunc(rec.Evals, func(e string) bool { return strings.HasPrefix(e, prefix) })
		if at < 0 || !strings.HasSuffix(rec.Evals[at], want) {
			t.Errorf("scores %s… do not end in%s checkpoints: %.60q", prefix, want, rec.Evals)
		}
	}
}

// TestBestIsInitial: where no epoch does better than the policy that the run began with, an event says so.
func TestBestIsInitial(t *testing.T) {
	train, val := phasetest.Toy(t)
	optim := phases.DefaultOptimOptions()
	optim.WeightDecay = 0
	for _, tc := range []struct {
		lr   float64
		says bool
	}{{1e-30, true}, {1e-2, false}} {
		rceOpt := rce.DefaultOptions()
		rceOpt.Epochs, rceOpt.LR = 2, tc.lr
		plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
			Phases: []phases.Phase{rce.New(rceOpt, optim, schedule.DefaultLROptions(), train, 16, 0)}}
		plan.Checkpoint.Best.Metric = new("val_loss")
		rec := &phasetest.Memory{}
		r, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, rec, t.TempDir()), nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.Join(rec.Rows, "\n")
		if (r.BestPhase == "init") != tc.says || strings.Contains(rows, "best is the initial policy: ") != tc.says {
			t.Errorf("lr %g: best is of %s; want the event: %v", tc.lr, r.BestPhase, tc.says)
		}
	}
}

// factor is a factor of the CPU.
func factor(v float64) *torchx.Factor { return new(torchx.Upload).Factor(v, torchx.Tensor{}) }
