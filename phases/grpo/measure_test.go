package grpo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/phases"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// counted counts the copies of a policy and the forward passes of policies that share passes.
type counted struct {
	selector.Policy
	passes, copies *int
}

func (c counted) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	*c.passes++
	return c.Policy.Forward(b, opt)
}

func (c counted) Clone() selector.Policy {
	*c.copies++
	return counted{c.Policy.Clone(), c.passes, c.copies}
}

// countedToken is counted of a token policy.
type countedToken struct {
	counted
	selector.TokenPolicy
}

func (c countedToken) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	return c.counted.Forward(b, opt)
}
func (c countedToken) Clone() selector.Policy { return c.counted.Clone() }

// unpenalised returns online GRPO with β = 0 and its reference at the run's start.
func unpenalised(every int) Options {
	o := DefaultOptions()
	o.Epochs, o.LR, o.Rollout, o.OldPolicy, o.GroupSize = 2, 1e-2, "online", "batch", 4
	o.KL.Beta, o.KL.Controller, o.KL.Reference, o.KL.MeasureEvery = 0, "fixed", "init", every
	return o
}

// TestReferencePasses counts the passes of the reference policy in six steps, and finds kl in the rows of the steps that measure it. A KL
// that is not in the loss changes no weight.
func TestReferencePasses(t *testing.T) {
	train, val := phasetest.Toy(t)
	pointer := func(o Options) (*Phase, *phases.Env) {
		return New("grpo", o, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 8),
			phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
	}
	tokens := func(o Options) (*Phase, *phases.Env) {
		o.Ratio, o.Loss, o.KL.Estimator, o.LR = "token", "dapo", "k3", 0.05
		return New("grpo", o, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, toyQuestions("train", 0, 24), 8),
			tokenEnv(t, &phasetest.Memory{}, t.TempDir())
	}
	offline := func(o *Options) { o.Rollout, o.OldPolicy, o.KL.Reference = "offline", "phase_start", "phase_start" }
	thrice := func(o *Options) { o.NumIterations, o.KL.Estimator = 3, "k3" }
	all := []int{0, 1, 2, 3, 4, 5}
	for _, tc := range []struct {
		name   string
		open   func(o Options) (*Phase, *phases.Env)
		every  int
		change func(*Options)
		passes int   // of the reference; of recorded groups those before the first step, too
		rows   []int // steps with a kl
	}{
		{"pointer, every step", pointer, 1, nil, 6, all},
		{"pointer, every fourth", pointer, 4, nil, 1, []int{3}},
		{"pointer, never", pointer, 0, nil, 0, nil},
		{"pointer, three passes", pointer, 1, thrice, 2, all},
		{"pointer, three passes, every second", pointer, 2, thrice, 2, []int{1, 3, 5}},
		{"pointer, three passes, every fifth", pointer, 5, thrice, 1, []int{4}},
		{"pointer, three passes, never", pointer, 0, thrice, 0, nil},
		{"recorded, one policy for both", pointer, 1, offline, 1, all},
		{"recorded, every fourth", pointer, 4, offline, 1, []int{3}},
		{"recorded, never", pointer, 0, offline, 1, nil}, // as the old policy
		{"tokens, every step", tokens, 1, nil, 6, all},
		{"tokens, every fourth", tokens, 4, nil, 1, []int{3}},
		{"tokens, never", tokens, 0, nil, 0, nil},
		{"tokens in parts, every fourth", tokens, 4, func(o *Options) { o.MicroBatch = new(3) }, 3, []int{3}},
		{"tokens, three passes, every second", tokens, 2, thrice, 2, []int{1, 3, 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			weights := func(every int) (passes int, rows []int, w []float32) {
				o, copies := unpenalised(every), 0
				if tc.change != nil {
					tc.change(&o)
				}
				phase, env := tc.open(o)
				count := counted{env.Initial, &passes, &copies}
				env.Initial = count
				if p, ok := count.Policy.(selector.TokenPolicy); ok {
					env.Initial = countedToken{count, p}
				}
				if o.Rollout == "offline" {
					policy := env.Policy
					env.Policy = counted{policy, &passes, &copies}
					defer func() { env.Policy = policy }()
				}
				if err := phase.Begin(env, 6); err != nil {
					t.Fatal(err)
				}
				defer phase.End()
				if err := phase.Prepare(context.Background(), stat.Indices(phase.src.Len())); err != nil {
					t.Fatal(err)
				}
				if o.Rollout == "offline" {
					env.Policy = env.Policy.(counted).Policy // from here the passes of the policy do not count
				}
				phase.BeginEpoch(1)
				for step := range 6 {
					batch := step / o.NumIterations * 8 % 24
					at := phases.At{Epoch: 1, Step: step, Pass: step % o.NumIterations, Queries: all8(batch)}
					m, err := phasetest.Row(phase.Step(context.Background(), at))
					if err != nil {
						t.Fatal(err)
					}
					if _, ok := m["kl"]; ok {
						rows = append(rows, step)
					}
					if _, ok := m["kl_per_token"]; phase.text && ok != slices.Contains(rows, step) {
						t.Errorf("step %d: kl_per_token: %t", step, ok)
					}
					if m["kl_loss"] == nil || m["entropy"] == nil {
						t.Errorf("step %d: row %v", step, m)
					}
				}
				return passes, rows, env.Policy.Params().Values()
			}
			passes, rows, w := weights(tc.every)
			if passes != tc.passes || !slices.Equal(rows, tc.rows) {
				t.Errorf("%d passes, kl in the rows of %v, want %d and %v", passes, rows, tc.passes, tc.rows)
			}
			if _, _, same := weights(1); !slices.Equal(w, same) {
				t.Error("the weights are not those of a run that measures every step")
			}
		})
	}
}

// all8 returns eight queries from the given one.
func all8(from int) []int {
	queries := make([]int, 8)
	for i := range queries {
		queries[i] = from + i
	}
	return queries
}

// TestNoReferenceIsCopied: a KL that is never measured costs no copy of the policy, and no row has one.
func TestNoReferenceIsCopied(t *testing.T) {
	train, val := phasetest.Toy(t)
	for every, want := range map[int]int{0: 0, 3: 1} {
		o := unpenalised(every)
		o.KL.Reference = "phase_start"
		rec, passes, copies := &phasetest.Memory{}, 0, 0
		env := phasetest.ToyEnv(t, val, rec, t.TempDir())
		env.Policy = counted{env.Policy, &passes, &copies}
		phase := New("grpo", o, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 8)
		if _, err := phases.Run(context.Background(), phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
			Phases: []phases.Phase{phase}}, env, nil); err != nil {
			t.Fatal(err)
		}
		if copies != want {
			t.Errorf("measure_every=%d: %d copies, want %d", every, copies, want)
		}
		for _, row := range rec.Rows {
			if trained := strings.HasPrefix(row, "step grpo") || strings.HasPrefix(row, "epoch grpo"); every == 0 && trained &&
				(strings.Contains(row, `"kl"`) || strings.Contains(row, `"val_kl"`) || strings.Contains(row, `"kl_reference"`)) {
				t.Errorf("a KL that nothing measures: %s", row)
			}
		}
		if best := rec.Rows[len(rec.Rows)-2:]; !strings.Contains(fmt.Sprint(best), `"kl_reference":"init"`) {
			t.Errorf("the best policy has no KL to the initial one: %s", best)
		}
	}
	o := unpenalised(0)
	o.Advantage.Method = "reference_rollout"
	phase := New("grpo", o, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 8)
	env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
	if err := phase.Begin(env, 6); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	phasetest.MustStepAt(t, phase, 0, all8(0)) // the reference's selections are the baseline
}

// TestResumeBetweenMeasurements: a run stopped between two measured steps goes on as if it had not been.
func TestResumeBetweenMeasurements(t *testing.T) {
	train, val := phasetest.Toy(t)
	env := func(rec phases.Recorder, dir string) *phases.Env { return phasetest.ToyEnv(t, val, rec, dir) }
	for every, kls := range map[int]int{4: 3, 0: 0} {
		plan := func() phases.Plan {
			o := unpenalised(every)
			o.NumIterations, o.KL.Estimator, o.KL.Reference = 2, "k3", "phase_start"
			return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Phases: []phases.Phase{
				New("grpo", o, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
		}
		rec, n := phasetest.Resumes(t, plan, 12, env), 0
		for _, row := range rec.Rows {
			if strings.HasPrefix(row, "step ") && strings.Contains(row, `"kl":`) {
				n++
			}
		}
		if n != kls {
			t.Errorf("measure_every=%d: %d of 12 steps have a kl, want %d", every, n, kls)
		}
	}
}

// TestUnmeasuredKLIsRefused: whatever goes by the KL wants it measured.
func TestUnmeasuredKLIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		best   phases.BestOptions
		want   string
	}{
		{"in the loss, now and then", func(o *Options) { o.KL.MeasureEvery, o.KL.Beta = 2, 0.04 }, phases.BestOptions{},
			"measure_every: 2 leaves steps without a KL, and beta=0.04 with controller=fixed"},
		{"a controller, now and then", func(o *Options) { o.KL.MeasureEvery, o.KL.Controller = 2, "band" }, phases.BestOptions{},
			"measure_every: 2 leaves steps without a KL, and beta=0 with controller=band"},
		{"the temperature, now and then", func(o *Options) { o.KL.MeasureEvery, o.Temperature.Enabled = 2, true }, phases.BestOptions{},
			"temperature.enabled goes by it"},
		{"a bound, now and then", func(o *Options) { o.KL.MeasureEvery = 2 }, phases.BestOptions{KLMax: new(0.5)}, ""},
		{"nothing goes by it", func(*Options) {}, phases.BestOptions{}, ""},
		{"in the loss", func(o *Options) { o.KL.Beta = 0.04 }, phases.BestOptions{},
			"measure_every: 0 leaves steps without a KL, and beta=0.04 with controller=fixed goes by it: want 1, or beta=0 with controller=fixed"},
		{"a controller", func(o *Options) { o.KL.Controller = "band" }, phases.BestOptions{}, "beta=0 with controller=band goes by it"},
		{"the temperature", func(o *Options) { o.Temperature.Enabled = true }, phases.BestOptions{}, "temperature.enabled goes by it"},
		{"a bound", func(*Options) {}, phases.BestOptions{KLMax: new(0.5)}, "checkpoint.best goes by it"},
		{"a choice", func(*Options) {}, phases.BestOptions{Metric: new("val_kl"), Mode: new("max")}, "checkpoint.best goes by it"},
		{"another choice", func(*Options) {}, phases.BestOptions{Metric: new("val_loss")}, ""},
	} {
		o := unpenalised(0)
		tc.change(&o)
		got := fmt.Sprint(o.KL.Validate(), o.Validate(), o.ValidateBest(tc.best))
		if tc.want == "" && got != "<nil> <nil> <nil>" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, want %q", tc.name, got, tc.want)
		}
	}
}
