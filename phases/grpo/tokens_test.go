package grpo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/objective"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// tokenGRPO is online GRPO on the toy questions.
func tokenGRPO(change func(*Options)) *Phase {
	opt := DefaultOptions()
	opt.Epochs, opt.LR, opt.Rollout, opt.OldPolicy, opt.Ratio, opt.Loss = 2, 0.05, "online", "batch", "token", "dapo"
	opt.KL.Estimator, opt.KL.Beta, opt.GroupSize = "k3", 0.01, 6
	if change != nil {
		change(&opt)
	}
	return New("grpo", opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, toyQuestions("train", 0, 24), 8)
}

func tokenRCE(change func(*rce.Options)) *rce.Phase {
	opt := rce.DefaultOptions()
	opt.Epochs, opt.LR, opt.Rollout, opt.Rewards, opt.Average = 2, 0.05, "online", "raw", "token"
	opt.Temperature.Start, opt.Temperature.End = 0.5, 0.1
	if change != nil {
		change(&opt)
	}
	return rce.New(opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, toyQuestions("train", 0, 24), 8, 0)
}

func tokenSFT() *rce.Phase {
	opt := rce.DefaultSFTOptions()
	opt.Epochs, opt.LR, opt.Average = 1, 0.05, "token"
	return rce.NewSFT(opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, toyQuestions("train", 0, 24), 8, 0)
}

// tokenPlan has every phase and every kind of state that token policies have.
func tokenPlan() phases.Plan {
	return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: phasetest.Nosy(),
		Phases: []phases.Phase{tokenSFT(), tokenRCE(nil), tokenGRPO(func(o *Options) {
			o.NumIterations, o.MicroBatch, o.KL.SyncSteps, o.KL.SyncMix, o.ZeroVariance = 4, new(3), new(5), 0.6, "resample"
			o.EntropyWeight, o.KL.Reference = 0.01, "init"
		})}}
}

// TestTokenPhasesLearn: SFT on references, RCE on samples and on recorded completions, and GRPO under every
// loss, ratio, estimator and number of passes raise the reward of held-out questions.
func TestTokenPhasesLearn(t *testing.T) {
	long := func(o *Options) { o.Epochs = 12 }
	all := map[string]phases.Phase{"rce online": tokenRCE(func(o *rce.Options) { o.Epochs = 12 }),
		"rce recorded": tokenRCE(func(o *rce.Options) { o.Epochs, o.Rollout, o.MicroBatch = 12, "offline", new(3) }),
		"rce sequence": tokenRCE(func(o *rce.Options) { o.Epochs, o.Average = 12, "sequence" }),
		"leave one out, filtered": tokenGRPO(func(o *Options) {
			long(o)
			o.Advantage.Method, o.ZeroVariance = "leave_one_out", "filter"
		}),
		"early top 2": tokenGRPO(func(o *Options) { long(o); o.Curriculum.EarlyEpochs, o.Curriculum.EarlyTopK = 4, 2 }),
		"recorded groups": tokenGRPO(func(o *Options) {
			long(o)
			o.Rollout, o.OldPolicy = "offline", "epoch_start"
		}),
	}
	for _, ratio := range []string{"sequence", "token"} {
		for _, loss := range []string{"grpo", "bnpo", "dapo", "dr_grpo", "gspo", "ppo_clip"} {
			for i, estimator := range []string{"k1", "k2", "k3"} {
				if testing.Short() && i != len(loss)%3 {
					continue // one estimator for each loss
				}
				change := func(o *Options) {
					long(o)
					o.Ratio, o.Loss, o.KL.Estimator, o.NumIterations = ratio, loss, estimator, 1+3*(i%2)
					o.MaskTruncated = i == 2
				}
				o := DefaultOptions()
				if change(&o); o.Validate() == nil || o.OldPolicy != "batch" &&
					(ratio == "token" || loss == "grpo" || loss == "gspo" || loss == "ppo_clip") {
					all[fmt.Sprintf("%s %s %s", ratio, loss, estimator)] = tokenGRPO(change)
				}
			}
		}
	}
	want := 6 + 3*(3+6)
	if testing.Short() {
		want = 6 + 3 + 6
	}
	if len(all) != want {
		t.Fatalf("%d phases, want %d", len(all), want)
	}
	checkpoint := phases.DefaultCheckpointOptions()
	checkpoint.EveryEpochs = 100
	for name, phase := range all {
		t.Run(name, func(t *testing.T) {
			rec := &phasetest.Memory{}
			env := tokenEnv(t, rec, t.TempDir())
			before, err := phases.Validate(nil, env.Initial, env.Initial, env.Data.Val, env.Data)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := phases.Run(context.Background(), phases.Plan{Checkpoint: checkpoint, Phases: []phases.Phase{phase}}, env, nil); err != nil {
				t.Fatal(err)
			}
			after, err := phases.Validate(nil, env.Policy, env.Initial, env.Data.Val, env.Data)
			if err != nil {
				t.Fatal(err)
			}
			if after.Reward < before.Reward+0.4 || after.KL <= 0 || before.KL != 0 {
				t.Errorf("reward %.3f → %.3f, KL %.3g → %.3g: want a gain of at least 0.4, and a KL from 0", before.Reward, after.Reward, before.KL,
					after.KL)
			}
		})
	}
}

// TestEpochsWithoutSignalAreReported: sampled groups whose rewards never differ teach nothing, and the run says so.
func TestEpochsWithoutSignalAreReported(t *testing.T) {
	for precision, want := range map[float64]int{10: 1, 0: 0} { // rewards lie within 1.5 of each other
		rec := &phasetest.Memory{}
		phase := tokenGRPO(func(o *Options) { o.Epochs, o.Advantage.Precision = 7, precision }) // 21 steps: a shorter phase is only warned
		_, err := phases.Run(context.Background(), phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: doctor.Checks(),
			Phases: []phases.Phase{phase}}, tokenEnv(t, rec, t.TempDir()), nil)
		var stop *doctor.StopError
		if errors.As(err, &stop) != (want > 0) || want == 0 && err != nil {
			t.Fatalf("precision %v: error %v", precision, err)
		}
		found := 0
		for _, row := range rec.Rows {
			if strings.HasPrefix(row, "event ") && strings.Contains(row, "no_signal") {
				found++
			}
		}
		if found != want {
			t.Errorf("precision %v: %d findings, want %d:\n%s", precision, found, want, strings.Join(rec.Rows, "\n"))
		}
	}
}

// TestTokenResumeIsExact stops the plan of all phases at every step.
func TestTokenResumeIsExact(t *testing.T) {
	phasetest.ResumesExactly(t, func() phases.Plan { return tokenPlan() }, 3*(1+2+2*4),
		func(rec phases.Recorder, dir string) *phases.Env { return tokenEnv(t, rec, dir) })
}

// TestTokenMetrics: a run's rows carry what a reader of token GRPO looks for, and consistent numbers.
func TestTokenMetrics(t *testing.T) {
	rec := &phasetest.Memory{}
	if _, err := phases.Run(context.Background(), tokenPlan(), tokenEnv(t, rec, t.TempDir()), nil); err != nil {
		t.Fatal(err)
	}
	steps := rec.Steps(t, "grpo")
	if len(steps) != 2*3*4 {
		t.Fatalf("%d steps", len(steps))
	}
	for i, m := range steps {
		get := func(name string) float64 {
			x, ok := m[name].(float64)
			if !ok {
				t.Fatalf("step %d: no %s", i+1, name)
			}
			return x
		}
		if first := i%4 == 0; first != (get("mean_ratio") == 1) {
			t.Errorf("step %d: mean ratio %v; the first pass over a batch, and no other, has exactly 1", i+1, get("mean_ratio"))
		}
		if get("completion_length_min") > get("completion_length") || get("completion_length") > get("completion_length_max") ||
			get("completion_length_max") > toyMost {
			t.Errorf("step %d: lengths %v", i+1, m)
		}
		if d := get("reward_right") + 0.5*get("reward_ended") - get("mean_reward"); math.Abs(d) > 1e-12 {
			t.Errorf("step %d: the terms are off the reward by %g", i+1, d)
		}
		if d := get("kl_per_token")*get("tokens") - get("kl")*get("items"); math.Abs(d) > 1e-9 {
			t.Errorf("step %d: KL per token and per sequence differ by %g", i+1, d)
		}
		for _, name := range []string{"entropy", "reward_std", "truncated_share", "reward_right_std", "clip_fraction_low", "clip_fraction_high",
			"resampled_groups", "kl_loss"} {
			get(name)
		}
	}
	var epoch map[string]any
	for _, row := range rec.Rows {
		if strings.HasPrefix(row, "epoch grpo 2 ") {
			if err := json.Unmarshal([]byte(row[strings.Index(row, "{"):]), &epoch); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"val_loss", "val_kl", "val_reward", "val_reward_right", "val_reward_ended", "val_completion_length",
		"val_truncated_share", "val_accuracy"} {
		if _, ok := epoch[name].(float64); !ok {
			t.Errorf("the epoch has no %s", name)
		}
	}
	// the first step of the 2 epochs of rce and of grpo
	if n := 2*2*8 + 2*2*6; len(rec.Kept) != n {
		t.Errorf("%d completions were kept, want %d", len(rec.Kept), n)
	}
}

// TestSamplerGap: whatever the ratio and the old policy, each row of sampled completions says how far the sampler's
// log-probabilities are from those of the old policy's forward pass; recorded ones have none.
func TestSamplerGap(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"a ratio a token": func(o *Options) { o.NumIterations, o.MicroBatch, o.Correction.Kind = 2, new(3), "mask" },
		"a hot sampler":   func(o *Options) { o.SampleTemp = 1.7 },
		"a ratio a sequence": func(o *Options) {
			o.Ratio, o.Loss, o.OldPolicy, o.ZeroVariance = "sequence", "grpo", "epoch_start", "resample"
		},
		"recorded": func(o *Options) { o.Rollout, o.OldPolicy = "offline", "epoch_start" },
	} {
		t.Run(name, func(t *testing.T) {
			rec := &phasetest.Memory{}
			plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Phases: []phases.Phase{tokenGRPO(change)}}
			if _, err := phases.Run(context.Background(), plan, tokenEnv(t, rec, t.TempDir()), nil); err != nil {
				t.Fatal(err)
			}
			for i, m := range rec.Steps(t, "grpo") {
				median, there := m["sampler_gap"].(float64)
				most, _ := m["sampler_gap_max"].(float64)
				if cut, on := m["correction_share"]; on != (name == "a ratio a token") || on && cut != 0.0 { // weights of a rounding
					t.Errorf("step %d: correction_share %v", i+1, cut)
				}
				if there != (name != "recorded") || median > most || most > 1e-6 { // float32
					t.Errorf("step %d: gap %v, largest %v", i+1, m["sampler_gap"], m["sampler_gap_max"])
				}
			}
		})
	}
}

// TestPassesKeepLogProbs: of four passes over a batch only the first asks the reference.
func TestPassesKeepLogProbs(t *testing.T) {
	env := tokenEnv(t, &phasetest.Memory{}, t.TempDir())
	phase := tokenGRPO(func(o *Options) { o.NumIterations, o.Epochs = 4, 1 })
	*env.Initial.(*tokenPolicy).Forwards = 0
	if err := phase.Begin(env, 12); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	policy, _ := phase.Reference()
	reference := policy.(*tokenPolicy)
	want := env.Policy.Clone() // the policy that sampled
	defer want.Free()
	for pass := range 4 {
		if _, err := phase.Step(context.Background(), phases.At{Epoch: 1, Step: pass, Pass: pass, Queries: []int{0, 1, 2}}); err != nil {
			t.Fatal(err)
		}
		if *reference.Forwards != 1 {
			t.Errorf("after pass %d the reference was asked %d times", pass, *reference.Forwards)
		}
		end := torchx.Scope()
		logp := want.Forward(phase.rollout.batch, selector.ForwardOptions{}).LogP.Floats()
		end()
		for _, kept := range [][]float32{phase.rollout.old, phase.rollout.ref} { // both start as the policy
			if !slices.Equal(kept, objective.Rounded(logp)) {
				t.Fatalf("pass %d: kept %v, want %v", pass, kept, logp)
			}
		}
	}
}

// TestRCELoss: the losses of SFT and RCE are their definitions, for both averages, in one piece or in several.
func TestRCELoss(t *testing.T) {
	queries := []int{0, 1, 2, 3, 6}
	for _, average := range []string{"sequence", "token"} {
		for _, top1 := range []bool{false, true} {
			for _, micro := range []*int{nil, new(2)} {
				env := tokenEnv(t, nil, t.TempDir())
				r := tokenRCE(func(o *rce.Options) {
					o.Rollout, o.Average, o.Top1Only, o.MicroBatch = "offline", average, top1, micro
				})
				b := r.Info().Source.Recorded(queries)
				end := torchx.Scope()
				logp := env.Policy.Forward(b, selector.ForwardOptions{}).LogP.Floats()
				end()
				good := 1 / (1 + math.Exp(-2)) // rewards 1 and 0 at the first step's τ of 0.5
				if top1 {
					good = 1
				}
				loss, tokens := 0.0, 0.0
				for at, x := range logp {
					w := good
					if at/b.T%2 == 1 {
						w = 1 - good
					}
					loss -= w * x
					tokens += w * float64(b.Mask[at])
				}
				want := loss / float64(len(queries))
				if average == "token" {
					want = loss / tokens
				}
				if err := r.Begin(env, 10); err != nil {
					t.Fatal(err)
				}
				m, err := phasetest.Row(r.Step(context.Background(), phases.At{Epoch: 1, Queries: queries}))
				if err != nil {
					t.Fatal(err)
				}
				r.End()
				if got := m["loss"].(float64); math.Abs(got-want) > 1e-6 {
					t.Errorf("average=%s top1=%v micro=%v: loss %.9g, want %.9g", average, top1, micro != nil, got, want)
				}
			}
		}
	}
}

// TestZeroVariance: groups without a signal leave the batch, and others are drawn for them: the same ones
// for the same seed and step.
func TestZeroVariance(t *testing.T) {
	collect := func(mode string, rounds int, step int) (*Phase, []int) {
		env := tokenEnv(t, nil, t.TempDir())
		env.Policy.Params().Set("before", slices.Repeat([]float32{0}, (toyVocab+1)*toyVocab))
		kind := make([]float32, toyKinds*toyVocab)
		kind[1*toyVocab] = 30 // questions of kind 1 end at once: all rewards are 0
		env.Policy.Params().Set("kind", kind)
		g := tokenGRPO(func(o *Options) { o.ZeroVariance, o.MaxResamples = mode, rounds; o.GroupSize = 24 })
		if err := g.Begin(env, 1); err != nil {
			t.Fatal(err)
		}
		r, err := g.Collect(context.Background(), phases.At{Epoch: 1, Step: step, Queries: []int{0, 1, 5, 9}})
		if err != nil {
			t.Fatal(err)
		}
		g.rollout = r
		g.End2(t)
		return g, g.rollout.batch.Queries
	}
	if g, q := collect("keep", 1, 0); !slices.Equal(q, []int{0, 1, 5, 9}) || g.rollout.measured.SignalShare != 0.25 {
		t.Errorf("keep: queries %v, signal %v", q, g.rollout.measured.SignalShare)
	}
	if g, q := collect("filter", 1, 0); !slices.Equal(q, []int{0}) || g.rollout.counts.Candidates != 24 ||
		g.rollout.measured.SignalShare != 0.25 {
		t.Errorf("filter: queries %v, %d candidates, signal %v", q, g.rollout.counts.Candidates, g.rollout.measured.SignalShare)
	}
	g, first := collect("resample", 8, 0)
	if len(first) != 4 || first[0] != 0 || *g.rollout.measured.ResampledGroups < 3 {
		t.Errorf("resample: queries %v after %v more groups", first, *g.rollout.measured.ResampledGroups)
	}
	for _, q := range first[1:] {
		if q%toyKinds == 1 || slices.Contains([]int{0, 1, 5, 9}, q) {
			t.Errorf("resample drew query %d", q)
		}
	}
	if _, again := collect("resample", 8, 0); !slices.Equal(again, first) {
		t.Errorf("resampled %v, then %v", first, again)
	}
	if _, other := collect("resample", 8, 1); slices.Equal(other, first) {
		t.Errorf("another step drew the same %v", other)
	}
}

// End2 ends the phase but leaves the batch in hand to look at.
func (g *Phase) End2(t *testing.T) {
	hand := g.rollout
	g.End()
	g.rollout = hand
}

// TestNothingLeft: a batch of which nothing is left makes a step without a gradient, of which no ratio and no KL is known.
func TestNothingLeft(t *testing.T) {
	env := tokenEnv(t, nil, t.TempDir())
	kind := make([]float32, toyKinds*toyVocab)
	for k := range toyKinds {
		kind[k*toyVocab] = 60
	}
	env.Policy.Params().Set("kind", kind)
	for _, mode := range []string{"filter", "resample"} {
		g := tokenGRPO(func(o *Options) {
			o.ZeroVariance, o.KL.Controller, o.KL.Update, o.Temperature.Enabled = mode, "proportional", "step", true
		})
		if err := g.Begin(env, 1); err != nil {
			t.Fatal(err)
		}
		m, err := phasetest.Row(g.Step(context.Background(), phases.At{Epoch: 1, Queries: []int{0, 1}}))
		if err != nil || m["loss"] != 0.0 || m["grad_norm"] != 0.0 || m["items"] != 0 {
			t.Errorf("%s: %v, %v", mode, m, err)
		}
		for _, name := range []string{"kl", "kl_per_token", "mean_ratio", "clip_fraction", "clamp_fraction", "advantage_gain"} {
			if x, ok := m[name]; ok {
				t.Errorf("%s: %s is %v, want none", mode, name, x)
			}
		}
		if g.beta.Value() != g.opt.KL.Beta {
			t.Errorf("%s: β moved from %g to %g", mode, g.opt.KL.Beta, g.beta.Value())
		}
		g.End()
	}
}

// TestTokenStepsFreeTheirTensors: no step leaves a tensor behind.
func TestTokenStepsFreeTheirTensors(t *testing.T) {
	env := tokenEnv(t, nil, t.TempDir())
	for _, phase := range []phases.Phase{tokenRCE(func(o *rce.Options) { o.MicroBatch = new(1) }), tokenGRPO(func(o *Options) {
		o.NumIterations, o.MicroBatch, o.KL.SyncSteps, o.KL.SyncMix, o.EntropyWeight = 2, new(1), new(3), 0.5, 0.01
	})} {
		if err := phase.Begin(env, 100); err != nil {
			t.Fatal(err)
		}
		live := 0
		for step := range 20 {
			at := phases.At{Epoch: 1, Step: step, Pass: step % phase.Info().Passes, Queries: []int{0, 1, 2}}
			if _, err := phase.Step(context.Background(), at); err != nil {
				t.Fatal(err)
			}
			if step == 1 {
				live = torchx.Live()
			}
		}
		if torchx.Live() != live {
			t.Errorf("%s: %d tensors after 2 steps, %d after 20", phase.Info().Name, live, torchx.Live())
		}
		phase.End()
	}
}

// TestTokenStepsWaitOnce: a step of a token policy copies to the host once, whatever the batch, and uploads nothing token by token.
func TestTokenStepsWaitOnce(t *testing.T) {
	recorded := tokenGRPO(func(o *Options) { o.Rollout, o.OldPolicy, o.EntropyWeight = "offline", "epoch_start", 0.01 })
	for _, phase := range []phases.Phase{tokenSFT(), tokenRCE(func(o *rce.Options) { o.Rollout = "offline" }), recorded} {
		if err := phase.Begin(tokenEnv(t, nil, t.TempDir()), 100); err != nil {
			t.Fatal(err)
		}
		phases.BeginEpoch(phase, 1)
		phasetest.WaitsOnce(t, phase, []int{0, 1}, []int{2, 3, 4, 5, 6, 7, 8}, 24)
		phase.End()
	}
}

// TestReferenceSync: the reference moves after every so many steps, a share of the way.
func TestReferenceSync(t *testing.T) {
	for _, mix := range []float64{1, 0.6} {
		for _, from := range []string{"init", "phase_start"} {
			env := tokenEnv(t, nil, t.TempDir())
			g := tokenGRPO(func(o *Options) { o.KL.Reference, o.KL.SyncSteps, o.KL.SyncMix = from, new(2), mix })
			if err := g.Begin(env, 3); err != nil {
				t.Fatal(err)
			}
			start := env.Initial.Params().Values()
			want := slices.Clone(start)
			for step := range 4 {
				if _, err := g.Step(context.Background(), phases.At{Epoch: 1, Step: step, Queries: []int{0, 1, 2, 3}}); err != nil {
					t.Fatal(err)
				}
				if step%2 == 1 {
					for i, p := range env.Policy.Params().Values() {
						want[i] = float32(mix)*p + float32(1-mix)*want[i]
					}
				}
				var a, b []float64
				reference, _ := g.Reference()
				for i, x := range reference.Params().Values() {
					a, b = append(a, float64(x)), append(b, float64(want[i]))
				}
				golden.Close(t, a, b, 1e-6)
			}
			if !slices.Equal(env.Initial.Params().Values(), start) {
				t.Error("the initial policy moved")
			}
			if _, name := g.Reference(); name != "synced" {
				t.Errorf("the reference is called %s", name)
			}
			g.End()
		}
	}
}

// TestTokenValidation: val_loss is the mean over tokens of the weighted candidates, val_kl that of the greedy
// completions.
func TestTokenValidation(t *testing.T) {
	env := tokenEnv(t, nil, t.TempDir())
	other := newTokenPolicy(t)
	v := other.Weights.Values()
	for i := range v {
		v[i] += float32(i%5) / 10
	}
	other.Weights.SetValues(v)
	got, err := phases.Validate(nil, other, env.Initial, env.Data.Val, env.Data)
	if err != nil {
		t.Fatal(err)
	}
	defer torchx.Scope()()
	all := make([]int, env.Data.Val.Len())
	for i := range all {
		all[i] = i
	}
	b := env.Data.Val.Recorded(all)
	logp := other.Forward(b, selector.ForwardOptions{}).LogP.Floats()
	right, wrong := 1/(1+math.Exp(-10)), 1/(1+math.Exp(10)) // rewards 1 and 0 at τ = 0.1
	loss, tokens := 0.0, 0.0
	for at, x := range logp {
		w := right
		if at/b.T%2 == 1 {
			w = wrong
		}
		loss -= w * x
		tokens += w * float64(b.Mask[at])
	}
	golden.Close(t, []float64{got.Loss}, []float64{loss / tokens}, 1e-6)
	greedy, _ := other.Decode(env.Data.Val, all, toyMost, 1)
	kl := torchx.Sum(objective.MaskedSum(other.KL(greedy, env.Initial), greedy)).Item() / float64(len(all))
	golden.Close(t, []float64{got.KL}, []float64{kl}, 1e-6)
	if len(got.Texts) != len(all) || got.Texts[0] == "" || len(got.Terms) != 2 {
		t.Errorf("texts %q, terms %v", got.Texts, got.Terms)
	}
}

// TestTokenOptions: what can't be is refused by its key.
func TestTokenOptions(t *testing.T) {
	for _, tc := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Ratio = "sequence" }, "loss: dapo averages over tokens: want ratio=token beside it, " +
			"or a loss that averages over candidates"},
		{func(o *Options) { o.OldPolicy = "phase_start" }, "old_policy: want batch, every_n or epoch_start with rollout=online (the old " +
			"policy samples the groups and has to follow), got phase_start"},
		{func(o *Options) { o.OldPolicy = "init" }, "old_policy: want batch, every_n or epoch_start with rollout=online (the old policy " +
			"samples the groups and has to follow), got init"},
		{func(o *Options) { o.Rollout, o.ZeroVariance = "offline", "resample" }, "zero_variance: want keep or filter with rollout=offline: " +
			"there are no other groups than the recorded ones"},
		{func(o *Options) { o.KL.Estimator = "exact" }, "kl.estimator: want k1, k2 or k3 with a token policy: the exact KL over a " +
			"vocabulary has no gradient here"},
		{func(o *Options) { o.KL.Reference, o.KL.SyncSteps = "epoch_start", new(3) }, "sync_steps: want null with reference=epoch_start, " +
			"which refreshes the reference by the epoch"},
		{func(o *Options) { o.Advantage.Std = "populatoin" }, `std: want one of sample, population, got "populatoin" (did you mean population?)`},
	} {
		g := tokenGRPO(tc.change)
		err := g.opt.Validate()
		for _, more := range []func() error{g.opt.ValidateTokens, g.opt.KL.Validate, g.opt.Advantage.Validate} {
			if err == nil {
				err = more()
			}
		}
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "=", ": "), strings.ReplaceAll(tc.want, "=", ": ")) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
	env := tokenEnv(t, nil, t.TempDir())
	if err := tokenGRPO(func(o *Options) { o.KL.Estimator = "exact" }).Begin(env, 1); err == nil ||
		!strings.Contains(err.Error(), "grpo.kl.estimator") {
		t.Errorf("an exact KL over tokens begins: %v", err)
	}
}
