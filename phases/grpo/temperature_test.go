package grpo

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// TestLossAtSamplingTemperature: the gradient of a step is that of the loss written out with old, new and reference
// log-probabilities at the temperature that the batch was sampled at, as in TRL, by central differences in float64; at
// temperature 1 the same loss has another gradient. Recorded groups keep temperature 1. A batch keeps its temperature
// through all its passes, though the policy's own moves with every step.
func TestLossAtSamplingTemperature(t *testing.T) {
	for _, tc := range []struct {
		name   string
		token  bool
		change func(*Options)
		want   float64 // temperature of the batch; 0: that of grpo.temperature when it was drawn, times 0.5
	}{
		{"tokens, sampled", true, func(*Options) {}, 0.5},
		{"tokens, one ratio a sequence", true, func(o *Options) { o.Ratio, o.Loss = "sequence", "grpo" }, 0.5},
		{"tokens, old policy of three steps", true, func(o *Options) { o.OldPolicy, o.UpdateOldAfter = "every_n", 3 }, 0.5},
		{"tokens, recorded", true, func(o *Options) { o.Rollout, o.OldPolicy = "offline", "phase_start" }, 1},
		{"tokens, moving temperature", true, func(o *Options) {
			o.Temperature.Enabled, o.Temperature.Start, o.Temperature.Update, o.Temperature.Factor = true, 1.5, "step", 1.3
		}, 0},
		{"pointer, sampled", false, func(*Options) {}, 0.5},
		{"pointer, soft", false, func(o *Options) { o.SampleTemp = 2 }, 2},
		{"pointer, recorded", false, func(o *Options) { o.Rollout, o.OldPolicy = "offline", "phase_start" }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, phase := temperatureTrial(t, tc.token, tc.change)
			if err := phase.Begin(env, 100); err != nil {
				t.Fatal(err)
			}
			defer phase.End()
			phase.learn.Optimizer.KeepGrad = true
			phase.BeginEpoch(1)
			if err := phase.Prepare(context.Background(), []int{0, 1, 2, 3}); err != nil {
				t.Fatal(err)
			}
			var old []float64
			var temperature float64
			for step := range 4 { // the second batch, its second pass: neither the old policy nor the reference is the policy
				if pass := step % 2; step == 3 {
					checkGradient(t, phase, env, step, pass, temperature, old)
					continue
				} else if _, err := phase.Step(context.Background(), phases.At{Epoch: 1, Step: step, Pass: pass,
					Queries: []int{0, 1, 2, 3}}); err != nil {
					t.Fatal(err)
				}
				if step == 1 { // before the second batch is drawn
					if temperature = tc.want; temperature == 0 {
						if temperature = 0.5 * phase.temp.Value(); temperature == 0.75 {
							t.Fatal("the policy's temperature did not move")
						}
					}
				}
				if step == 2 {
					if phase.opt.OldPolicy == "batch" { // the weights before this step made the samples
						continue
					}
					old = logProbsAt(phase.old.Policy, phase.rollout.batch, temperature)
				}
			}
		})
	}
}

// temperatureTrial returns a GRPO phase on four queries that samples at temperature 0.5 unless change says otherwise.
func temperatureTrial(t *testing.T, token bool, change func(*Options)) (*phases.Env, *Phase) {
	t.Helper()
	edit := func(o *Options) {
		o.SampleTemp, o.NumIterations, o.LR, o.KL.Beta, o.KL.Controller, o.KL.Estimator = 0.5, 2, 0.02, 0.3, "fixed", "k3"
		o.Clip.Epsilon, o.GroupSize = 0.9, 6
		o.Curriculum.EarlyEpochs = 0
		change(o)
	}
	if token {
		return tokenEnv(t, nil, t.TempDir()), tokenGRPO(edit)
	}
	torchx.Attach(1)
	opt := pointer.DefaultOptions()
	opt.HiddenDim, opt.Temperature = 16, 1
	p, err := pointer.New(opt, 16, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	initial := p.Clone()
	t.Cleanup(p.Free)
	t.Cleanup(initial.Free)
	train := phasetest.Ragged(t, 8)
	data := phases.Data{Val: train, Shots: 2, Shuffle: true, Advantage: advantage.DefaultOptions()}
	env := &phases.Env{Policy: p, Initial: initial, Seed: 4, Dir: t.TempDir(), ConfigHash: "hash", Data: data}
	grpo := DefaultOptions()
	grpo.Rollout, grpo.OldPolicy = "online", "batch"
	edit(&grpo)
	return env, New("grpo", grpo, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 4)
}

// logProbsAt returns log π of every step [B*G*T] at a temperature.
func logProbsAt(p selector.Policy, b *selector.Batch, temperature float64) []float64 {
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	return p.Forward(b, selector.ForwardOptions{Temperature: temperature}).LogP.Floats()
}

// checkGradient makes a later pass over the batch in hand and holds its loss and gradient against writtenOut.
func checkGradient(t *testing.T, g *Phase, env *phases.Env, step, pass int, temperature float64, old []float64) {
	t.Helper()
	b, params := g.rollout.batch, env.Policy.Params()
	weights := params.Values()
	if old == nil { // the first pass kept what the samples were drawn with
		for _, x := range g.rollout.old {
			old = append(old, float64(x))
		}
	}
	ref := logProbsAt(env.Initial, b, temperature)
	m, err := phasetest.Row(g.Step(context.Background(), phases.At{Epoch: 1, Step: step, Pass: pass, Queries: b.Queries}))
	if err != nil {
		t.Fatal(err)
	}
	gradient := params.Grad().Floats()
	at := func(w []float32, temperature float64) float64 {
		params.SetValues(w)
		return writtenOut(g, b, logProbsAt(env.Policy, b, temperature), old, ref)
	}
	if got, want := m["loss"].(float64), at(weights, temperature); math.Abs(got-want) > 1e-5 {
		t.Errorf("loss %.8g, want %.8g at temperature %g", got, want, temperature)
	}
	r := rand.New(rand.NewPCG(9, 9))
	other, size := 0.0, 0.0
	for range 5 {
		const step = 0.005
		up, down := make([]float32, len(weights)), make([]float32, len(weights))
		slope := 0.0
		for i, w := range weights {
			d := r.NormFloat64()
			up[i], down[i] = w+float32(step*d), w-float32(step*d)
			slope += gradient[i] * float64(up[i]-down[i])
		}
		// 2e-3: the error of central differences, and of float32 log-probabilities over a step of 0.005.
		want := at(up, temperature) - at(down, temperature)
		if math.Abs(slope-want) > 2e-3*math.Abs(want)+4e-6 {
			t.Errorf("the gradient gives %.6g along a direction, central differences %.6g (temperature %g)", slope, want, temperature)
		}
		wrong := at(up, 1.25*temperature) - at(down, 1.25*temperature)
		other, size = other+math.Abs(wrong-want), size+math.Abs(want)
	}
	if other < 0.05*size {
		t.Errorf("another temperature changes the slopes by %.3g of %.3g: the test can't tell", other, size)
	}
}

// writtenOut is GRPO's loss with clip and k3 of a batch in float64: dapo's over tokens, else one ratio a sequence.
func writtenOut(g *Phase, b *selector.Batch, logp, old, ref []float64) float64 {
	perToken := g.opt.Ratio == "token"
	low, high := g.opt.Clip.sides()
	loss, n := 0.0, 0.0
	for at, ok := range b.Valid {
		if !ok {
			continue
		}
		var new, before, reference []float64
		for k := at * b.T; k < (at+1)*b.T; k++ {
			if b.Mask[k] == 0 {
				continue
			}
			new, reference = append(new, logp[k]), append(reference, ref[k])
			if len(old) == len(logp) {
				before = append(before, old[k])
			}
		}
		if !perToken {
			new, reference = []float64{stat.Sum(new)}, []float64{stat.Sum(reference)}
			if before = []float64{stat.Sum(before)}; len(old) != len(logp) {
				before = []float64{old[at]}
			}
		}
		for i := range new {
			ratio, d := math.Exp(new[i]-before[i]), reference[i]-new[i]
			a := g.rollout.adv[at]
			loss += -math.Min(ratio*a, math.Max(1-low, math.Min(1+high, ratio))*a) + g.beta.Value()*(math.Exp(d)-1-d)
			n++
		}
	}
	return loss / n
}
