package preflight

import (
	"context"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/grpo"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// rig is a run's policy, data and stages, to plant faults in.
type rig struct {
	optim  *phases.OptimOptions // that the phases are built with
	trial  Trial
	stages []Stage
	checks []doctor.Check
	steps  int
	online *grpo.Options // of the last stage

	imitation *rce.Options // of the first stage
}

func newRig(t *testing.T) *rig {
	t.Helper()
	opt := beamdata.DefaultOptions()
	opt.Reward.Mode = "vqa_gt_prob"
	opt.Shapes.TrainQueries, opt.Shapes.ReaderQuestions, opt.Shapes.ValQueries, opt.Shapes.DevQueries = 120, 40, 20, 0
	b, err := beamdata.Load(opt)
	if err != nil {
		t.Fatal(err)
	}
	sel := pointer.DefaultOptions()
	sel.HiddenDim, sel.Dropout = 16, 0.1
	policy, err := pointer.New(sel, b.Val.Table.Dim, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(policy.Free)
	policy.SetShots(2)
	optim := phases.DefaultOptimOptions()
	optim.WeightDecay = 0
	lr := schedule.DefaultLROptions()
	imitation, online := rce.DefaultOptions(), grpo.DefaultOptions()
	imitation.LR, online.LR, online.Rollout, online.OldPolicy = 1e-3, 1e-3, "online", "batch"
	offline := grpo.DefaultOptions()
	offline.LR, offline.Freeze = 1e-3, []string{"input_proj"}
	r := &rig{
		trial: Trial{Policy: policy, Seed: 5, Data: phases.Data{Shots: 2, Normalize: func(r []float64) []float64 { return r }}},
		stages: []Stage{
			{Name: "rce", Source: pointer.NewSource(b.RCE), Build: func(s selector.Source) (phases.Phase, error) {
				return rce.New(imitation, optim, lr, s, 8, 0), nil
			}},
			{Name: "grpo", Source: pointer.NewSource(b.Records), Freeze: offline.Freeze, Build: func(s selector.Source) (phases.Phase, error) {
				return grpo.New("grpo", offline, optim, lr, s, 8), nil
			}},
			{Name: "grpo_online", Source: pointer.NewSource(b.Online), Online: true, Build: func(s selector.Source) (phases.Phase, error) {
				return grpo.New("grpo_online", online, optim, lr, s, 8), nil
			}},
		},
		checks: Checks(),
		steps:  trialSteps,
		optim:  &optim, online: &online, imitation: &imitation,
	}
	for i := range r.stages {
		r.stages[i].Optim, r.stages[i].SampleTemp = optim, 1
	}
	r.stages[0].Credit = func(b *selector.Batch, tau float64) []float64 {
		w, _ := group.Weights(b.Rewards, b.Valid, b.B(), b.G, tau, false)
		return w
	}
	for i, o := range []*grpo.Options{&offline, &online} {
		r.stages[i+1].Credit = func(b *selector.Batch, _ float64) []float64 {
			w := make([]float64, len(b.Valid))
			top, adv, _, _ := o.Curriculum.Apply(b.Rewards, b.Valid, b.B(), b.G, 1, o.Advantage)
			for k, ok := range top.Valid {
				if ok {
					w[k/top.K*b.G+top.Index[k]] = adv[k]
				}
			}
			return w
		}
	}
	return r
}

func (r *rig) found(t *testing.T) []Finding {
	t.Helper()
	report := New(r.checks, 1)
	report.steps = r.steps
	if err := report.Try(context.Background(), r.trial, r.stages); err != nil {
		t.Fatal(err)
	}
	return report.Findings()
}

// faulty is a policy whose forward pass is another.
type faulty struct {
	*pointer.Policy
	forward func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output
	clone   bool
	calls   *int
}

func (f *faulty) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	*f.calls++
	return f.forward(f, b, opt)
}

func (f *faulty) Clone() selector.Policy {
	return &faulty{f.Policy.Clone().(*pointer.Policy), f.forward, true, f.calls}
}

// with gives the rig's policy another forward pass.
func (r *rig) with(forward func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output) {
	r.trial.Policy = &faulty{r.trial.Policy.(*pointer.Policy), forward, false, new(int)}
}

// plain is the pass without the fault.
func (f *faulty) plain(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	return f.Policy.Forward(b, opt)
}

// mutant is a phase with a step of its own.
type mutant struct {
	phases.Phase
	env  *phases.Env
	step func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error)
	n    int
}

func (m *mutant) Begin(env *phases.Env, total int) error {
	m.env = env
	return m.Phase.Begin(env, total)
}

func (m *mutant) Step(ctx context.Context, at phases.At) (phases.Measured, error) {
	m.n++
	return m.step(m, func() (phases.Metrics, error) { return phasetest.Row(m.Phase.Step(ctx, at)) })
}

func (m *mutant) Expected() doctor.Limits              { return m.Phase.(phases.Expecter).Expected() }
func (m *mutant) BeginEpoch(epoch int)                 { phases.BeginEpoch(m.Phase, epoch) }
func (m *mutant) EndEpoch() phases.Measured            { return phases.EndEpoch(m.Phase) }
func (m *mutant) Reference() (selector.Policy, string) { return phases.ReferenceOf(m.Phase, m.env) }

// mutate wraps the phase of a stage.
func (r *rig) mutate(stage int, step func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error)) {
	build := r.stages[stage].Build
	r.stages[stage].Build = func(src selector.Source) (phases.Phase, error) {
		p, err := build(src)
		return &mutant{Phase: p, step: step}, err
	}
}

// upside is a source whose rewards are turned round for the phase alone.
type upside struct{ selector.Source }

func (u upside) Recorded(queries []int) *selector.Batch {
	b := *u.Source.Recorded(queries)
	b.Rewards = slices.Clone(b.Rewards)
	for i := range b.Rewards {
		b.Rewards[i] = -b.Rewards[i]
	}
	return &b
}

// holes is a scorer that gives NaN to choices of an even first example.
type holes struct{ beamdata.Scorer }

func (h holes) Score(i int, positions []int32) (float64, float64) {
	if positions[0]%2 == 0 {
		return math.NaN(), 0
	}
	return h.Scorer.Score(i, positions)
}

func TestHealthyPhases(t *testing.T) {
	r := newRig(t)
	before := r.trial.Policy.Params().Values()
	report := New(r.checks, 1)
	if err := report.Try(context.Background(), r.trial, r.stages); err != nil {
		t.Fatal(err)
	}
	if len(report.Findings()) > 0 || report.Judge() != nil {
		t.Errorf("healthy phases: %+v", report.Findings())
	}
	if n := report.Checks(); n < 30 {
		t.Errorf("%d checks, want all of them", n)
	}
	if !slices.Equal(before, r.trial.Policy.Params().Values()) {
		t.Error("the run's own policy has moved")
	}
	seen := ""
	for _, s := range report.Passed() {
		seen += s.Phase + " " + s.Check + ": " + s.Figures + "\n"
	}
	for _, want := range []string{`rce parameters_do_not_move: 11 of 11 tensors moved in \d+ steps, a weight of \S+ the farthest, by 0\.00\d+\n`,
		`grpo frozen_move: of the tensors \d+ stayed, which grpo.freeze names\n`, `grpo ratio_not_one: exactly 1 in the first step`,
		`grpo batch_changes_output: \S+, at most 0.001`} {
		if !regexp.MustCompile(want).MatchString(seen) {
			t.Errorf("no %s in\n%s", want, seen)
		}
	}
}

// A check that found something is not among those that passed.
func TestPassed(t *testing.T) {
	r := New(Checks(), 1)
	r.Saw("rce", "step_size", "3 times")
	r.Saw("grpo", "step_size", "1 times")
	r.add("rce", doctor.Stop, doctor.Finding{Check: "step_size", Message: "three times"})
	if got := r.Passed(); !slices.Equal(got, []Seen{{"grpo", "step_size", "1 times"}}) {
		t.Errorf("got %v", got)
	}
}

// Old policies of their own sample in a trial too, and are refreshed in it or not.
func TestHealthyOldPolicies(t *testing.T) {
	for _, every := range []int{2, 1000} {
		r := newRig(t)
		r.online.OldPolicy, r.online.UpdateOldAfter, r.steps = "every_n", every, 4
		if found := r.found(t); len(found) > 0 {
			t.Errorf("update_old_after %d: %+v", every, found)
		}
	}
}

// A reference that follows the policy may move with any step of a trial.
func TestHealthySyncedReference(t *testing.T) {
	for _, every := range []int{1, 2, 4} {
		r := newRig(t)
		r.online.KL.SyncSteps, r.online.KL.Beta = new(every), 1
		if found := r.found(t); len(found) > 0 {
			t.Errorf("sync_steps %d: %+v", every, found)
		}
	}
}

// lone is a source with one candidate a query.
type lone struct{ selector.Source }

func (l lone) Recorded(queries []int) *selector.Batch {
	return l.Source.Recorded(queries).Take(1, make([]int, len(queries)), slices.Repeat([]bool{true}, len(queries)))
}

// TestHealthyMoments: moments of half the bits are the gradient but for rounding, where a query has one candidate too.
func TestHealthyMoments(t *testing.T) {
	r := newRig(t)
	optim, build := r.stages[0].Optim, rce.DefaultSFTOptions()
	optim.State, build.LR = torchx.KeepBFloat16, 1e-3
	r.stages = r.stages[:1]
	r.stages[0].Source = lone{r.stages[0].Source}
	r.stages[0].Optim, r.stages[0].Credit = optim, build.Traits(phases.Setup{}).Credit
	r.stages[0].Build = func(s selector.Source) (phases.Phase, error) {
		return rce.NewSFT(build, optim, schedule.DefaultLROptions(), s, 8, 0), nil
	}
	if found := r.found(t); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// endless is a policy whose samples are all cut at the length limit, but for some.
type endless struct {
	*pointer.Policy
	whole int
}

func (e endless) Sample(src selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	b := e.Policy.Sample(src, queries, g, t, temperature, seed)
	b.Truncated = slices.Repeat([]bool{true}, len(b.Valid))
	clear(b.Truncated[:e.whole])
	return b
}

func (e endless) Clone() selector.Policy { return endless{e.Policy.Clone().(*pointer.Policy), e.whole} }

// With mask_truncated, a policy that does not end by itself yet still gives a trial something to look at: the few that do end may all have
// an advantage of 0.
func TestNothingButCutCompletions(t *testing.T) {
	for _, whole := range []int{0, 8, 32} {
		r := newRig(t)
		policy := endless{r.trial.Policy.(*pointer.Policy), whole}
		r.trial.Policy, r.online.MaskTruncated = policy, true
		if found := r.found(t); whole < 32 && len(found) > 0 {
			t.Errorf("%d whole: %+v", whole, found)
		}
		_, seen := watch(policy)
		_, src := newPart(r.stages[2].Source, []int{0, 1, 2, 3, 4, 5, 6, 7})
		if b := seen.Sample(src, []int{0, 1, 2, 3, 4, 5, 6, 7}, 8, 2, 1, 1); (b.Truncated == nil) != (whole < 32) {
			t.Errorf("%d whole: truncated %v", whole, b.Truncated)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plant func(r *rig)
		want  string // phase and check
		words string
	}{
		{"log-probabilities cut off", func(r *rig) {
			r.with(func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output {
				out := f.plain(b, opt)
				out.LogP = torchx.Detach(out.LogP)
				return out
			})
		}, "rce gradient_missing", "no gradient at all"},
		{"a gradient of rounding errors", func(r *rig) {
			r.mutate(1, func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				out, err := run()
				out["grad_norm"] = 3e-9
				return out, err
			})
		}, "grpo gradient_missing", "rounding"},
		{"a random evaluation", func(r *rig) {
			r.with(func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output {
				out := f.plain(b, opt)
				out.LogP = torchx.AddScalar(out.LogP, 1e-3*float64(*f.calls%7))
				return out
			})
		}, "rce forward_not_deterministic", "random"},
		{"dropout where there is a gradient", func(r *rig) {
			r.with(func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output {
				out := f.plain(b, opt)
				if !opt.Reference.Nil() { // only the step of GRPO asks for the KL
					out.LogP = torchx.Scale(out.LogP, 1.01)
				}
				return out
			})
		}, "grpo grad_nograd_differ", "dropout"},
		{"queries that read each other", func(r *rig) {
			r.with(func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output {
				out := f.plain(b, opt)
				out.LogP = torchx.AddScalar(out.LogP, 0.1*float64(b.B()))
				return out
			})
		}, "rce batch_changes_output", "in a batch of 8"},
		{"padding that counts", func(r *rig) {
			r.with(func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output {
				out := f.plain(b, opt)
				out.LogP = torchx.Scale(out.LogP, 1+0.1*float64(b.G))
				return out
			})
		}, "rce padding_changes_loss", "do not exist"},
		{"weights nobody reads", func(r *rig) {
			fixed := r.trial.Policy.Clone().(*pointer.Policy)
			r.with(func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output {
				out := f.plain(b, opt)
				opt.Reference = torchx.Tensor{}
				still := torchx.Detach(fixed.Forward(b, opt).LogP)
				out.LogP = torchx.Add(still, torchx.Sub(out.LogP, torchx.Detach(out.LogP)))
				return out
			})
		}, "rce weights_ignored", "does not read"},
		{"no optimizer step", func(r *rig) {
			r.mutate(1, func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				at := m.env.Policy.Params().Values()
				defer func() { m.env.Policy.Params().SetValues(at) }()
				return run()
			})
		}, "grpo parameters_do_not_move", "the optimizer makes no step"},
		{"a tensor left out", func(r *rig) {
			r.mutate(0, func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				p := m.env.Policy.Params()
				from, to := p.Range("query_proj.weight")
				at := slices.Clone(p.Values()[from:to])
				out, err := run()
				p.Set("query_proj.weight", at)
				return out, err
			})
		}, "rce parameters_do_not_move", "query_proj.weight did not move"},
		{"a frozen tensor that moves", func(r *rig) { r.stages[2].Freeze = []string{"cand_proj"} }, "grpo_online frozen_move",
			"cand_proj.weight moved"},
		{"a reference that follows", func(r *rig) {
			r.mutate(1, func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				out, err := run()
				reference, _ := m.Reference()
				reference.Params().CopyFrom(m.env.Policy.Params())
				return out, err
			})
		}, "grpo frozen_move", "reference policy"},
		{"gradients left over", func(r *rig) {
			r.mutate(0, func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				out, err := run()
				if err == nil {
					out["grad_norm"] = out["grad_norm"].(float64) * float64(m.n)
				}
				return out, err
			})
		}, "rce gradients_accumulate", "left over"},
		{"a ratio to other weights", func(r *rig) {
			r.mutate(2, func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				out, err := run()
				out["mean_ratio"] = 1.0000001
				return out, err
			})
		}, "grpo_online ratio_not_one", "1.0000001"},
		{"advantages turned round", func(r *rig) {
			build := r.stages[1].Build
			r.stages[1].Build = func(src selector.Source) (phases.Phase, error) { return build(upside{src}) }
		}, "grpo objective_not_improved", "better candidates"},
		{"imitation of the worst", func(r *rig) {
			build := r.stages[0].Build
			r.stages[0].Build = func(src selector.Source) (phases.Phase, error) { return build(upside{src}) }
		}, "rce objective_not_improved", "prefers the worse"},
		{"imitation uphill", func(r *rig) {
			r.mutate(0, func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				p := m.env.Policy.Params()
				at := p.Values()
				out, err := run()
				now := p.Values()
				for i := range now {
					now[i] = 2*at[i] - now[i]
				}
				p.SetValues(now)
				return out, err
			})
		}, "rce objective_not_improved", "imitates less likely"},
		{"a step that cannot be made", func(r *rig) {
			r.mutate(2, func(*mutant, func() (phases.Metrics, error)) (phases.Metrics, error) {
				return nil, fmt.Errorf("no device")
			})
		}, "grpo_online step_failed", "no device"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			tc.plant(r)
			for _, f := range r.found(t) {
				if f.Phase+" "+f.Check == tc.want && strings.Contains(f.Message, tc.words) {
					return
				}
			}
			t.Errorf("want %s: …%s…; got %+v", tc.want, tc.words, r.found(t))
		})
	}
}

// drawing is a policy that draws otherwise.
type drawing struct {
	*pointer.Policy
	temperature float64 // times that of the call
	seed        uint64  // instead of that of the call; 0: the call's
}

func (d drawing) Sample(src selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	if d.seed != 0 {
		seed = d.seed
	}
	return d.Policy.Sample(src, queries, g, t, temperature*d.temperature, seed)
}

func (d drawing) Clone() selector.Policy {
	return drawing{d.Policy.Clone().(*pointer.Policy), d.temperature, d.seed}
}

// next is a source whose recorded rewards are those of the next query of the batch, for the phase alone.
type next struct{ selector.Source }

func (n next) Recorded(queries []int) *selector.Batch {
	b := *n.Source.Recorded(queries)
	b.Rewards = append(slices.Clone(b.Rewards[b.G:]), b.Rewards[:b.G]...)
	return &b
}

// What the first step's rewards, optimizer and draws are held against.
func TestRecomputedFaults(t *testing.T) {
	for _, tc := range []struct {
		name        string
		plant       func(r *rig)
		want, words string
	}{
		{"a colder sampler", func(r *rig) { r.trial.Policy = drawing{r.trial.Policy.(*pointer.Policy), 0.05, 0} }, "grpo_online sampling_differs",
			"they fit a temperature of"},
		{"a sampler without a seed", func(r *rig) { r.trial.Policy = drawing{r.trial.Policy.(*pointer.Policy), 1, 9} },
			"grpo_online noise_repeats", "does not use its seed"},
		{"no clipping", func(r *rig) { r.optim.GradClipNorm = 0 }, "grpo clip_ignored", "optim.grad_clip_norm does not act"},
		{"rewards of the next query", func(r *rig) {
			build := r.stages[1].Build
			r.stages[1].Build = func(s selector.Source) (phases.Phase, error) { return build(next{s}) }
		}, "grpo credit_misplaced", "the weights of the next query"},
		{"another beta", func(r *rig) { r.stages[0].Optim.Betas = []float64{0.8, 0.999} }, "rce moments_differ", "optim.betas=[0.8 0.999]"},
		{"a smaller step", func(r *rig) {
			r.mutate(0, func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				out, err := run()
				out["lr"] = 1e3 * out["lr"].(float64)
				return out, err
			})
		}, "rce step_size", "0.001 times the learning rate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			tc.plant(r)
			found := r.found(t)
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.Phase+" "+f.Check == tc.want && strings.Contains(f.Message, tc.words) }) {
				t.Errorf("want %s: …%s…; got %+v", tc.want, tc.words, found)
			}
		})
	}
}

// Records, scores and validation are held against what stands in the data.
func TestTruth(t *testing.T) {
	r := newRig(t)
	src := r.stages[1].Source.(*pointer.Source)
	set := src.Set()
	truth := func(src selector.Source) Truth {
		return Truth{Source: src, Queries: []int{0, 1, 2, 3, 4, 5},
			Recorded: func(q int) (actions [][]int64, rewards []float64, err error) {
				for g := range set.NumCandidates(q) {
					c := set.Candidate(q, g)
					actions, rewards = append(actions, []int64{int64(c.Positions[0]), int64(c.Positions[1])}), append(rewards, c.Reward)
				}
				return actions, rewards, nil
			},
			Try: func(q int) ([][]int64, error) { return [][]int64{{0, 1}, {int64(q), 9}}, nil },
			Score: func(q int, scored []int64, _ bool) (float64, float64, error) {
				reward, accuracy := set.Scorer.Score(q, []int32{int32(scored[0]), int32(scored[1])})
				return reward, accuracy, nil
			}}
	}
	report := New(r.checks, 1)
	sound := truth(src)
	for _, err := range []error{report.Records(sound), report.Scores(sound, r.trial.Policy, r.trial.Data, 3)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(report.Findings()) > 0 {
		t.Errorf("sound data: %+v", report.Findings())
	}
	if err := report.Records(truth(next{src})); err != nil {
		t.Fatal(err)
	}
	wrong := sound
	wrong.Score = func(q int, scored []int64, cut bool) (float64, float64, error) {
		reward, accuracy, err := sound.Score(q, scored, cut)
		return 2 * reward, accuracy, err
	}
	if err := report.Scores(wrong, r.trial.Policy, r.trial.Data, 0); err != nil {
		t.Fatal(err)
	}
	found := report.Findings()
	if len(found) != 2 || found[0].Check != "recorded_differ" || found[1].Check != "scores_differ" || found[1].Severity != doctor.Stop {
		t.Errorf("got %+v, want recorded_differ and scores_differ", found)
	}
}

// A reward that is no number is named by query and candidate, whether it was recorded or sampled.
func TestNonfiniteReward(t *testing.T) {
	r := newRig(t)
	set := r.stages[2].Source.(*pointer.Source).Set()
	set.Scorer = holes{set.Scorer}
	got := r.found(t)
	if len(got) != 1 || got[0].Check != "nonfinite_rewards" || got[0].Severity != doctor.Stop ||
		!strings.Contains(got[0].Message, "candidate ") {
		t.Errorf("got %+v, want a stop that names a query and a candidate", got)
	}
}

// A check that is off says nothing, and compat softens a stop.
func TestSeverities(t *testing.T) {
	r := newRig(t)
	r.stages[2].Freeze = []string{"cand_proj"}
	report := New(r.checks, 1)
	if err := report.Try(context.Background(), r.trial, r.stages); err != nil {
		t.Fatal(err)
	}
	var stop *doctor.StopError
	if err := report.Judge(); err == nil || !strings.Contains(err.Error(), "stopped by frozen_move") {
		t.Errorf("got %v (%v), want a stop", err, stop)
	}
	r.checks = Options{Soft: true}.Adjusted(r.checks)
	if got := r.found(t); len(got) == 0 || got[0].Severity != doctor.Warning {
		t.Errorf("softened: %+v", got)
	}
	r.checks = Options{Off: []string{"frozen_move"}}.Adjusted(r.checks)
	if got := r.found(t); len(got) > 0 {
		t.Errorf("off: %+v", got)
	}
}

// Every check of this package and of the doctor has a severity, and each name stands once in its table; a name in both is as severe.
func TestEveryCheckIsConfigured(t *testing.T) {
	severity := map[string]doctor.Severity{}
	for of, checks := range map[string][]doctor.Check{"preflight": Checks(), "doctor": doctor.Checks()} {
		for _, c := range checks {
			if !c.Severity.WorseThan(doctor.Off) || severity[of+c.Name] != "" || severity[c.Name] != "" && severity[c.Name] != c.Severity {
				t.Errorf("%s: %+v, also %q", of, c, severity[c.Name])
			}
			severity[c.Name], severity[of+c.Name] = c.Severity, c.Severity
		}
	}
	if n := len(Checks()); n < 45 {
		t.Errorf("%d checks", n)
	}
}

// What is off says nothing, another severity is taken, soft options end no run; a name that no check has is refused with the nearest.
func TestOptions(t *testing.T) {
	var o Options
	o.Off, o.Severity = []string{"no_signal"}, map[string]doctor.Severity{"step_failed": doctor.Note, "kl_not_zero": doctor.Stop}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	of := func(checks []doctor.Check, name string) doctor.Severity {
		return checks[slices.IndexFunc(checks, func(c doctor.Check) bool { return c.Name == name })].Severity
	}
	for _, soft := range []bool{false, true} {
		want := doctor.Stop
		if o.Soft = soft; soft {
			want = doctor.Warning
		}
		got := []doctor.Severity{of(o.Rows(), "no_signal"), of(o.Adjusted(Checks()), "step_failed"), of(o.Rows(), "kl_not_zero"),
			of(o.Adjusted(Checks()), "frozen_move")}
		if !slices.Equal(got, []doctor.Severity{doctor.Off, doctor.Note, want, want}) {
			t.Errorf("soft %v: %v", soft, got)
		}
	}
	if o.Off = append(o.Off, "doctor"); o.Rows() != nil || !o.Tries() {
		t.Error("rows are looked at though the doctor is off")
	}
	for _, bad := range []Options{{Off: []string{"no_signl"}}, {Severity: map[string]doctor.Severity{"no_signl": doctor.Note}}} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), `unknown check "no_signl" (did you mean no_signal?)`) {
			t.Errorf("%v", err)
		}
	}
}

// A step that takes nearly all of the memory is a finding, with the key to change.
func TestCrowded(t *testing.T) {
	for share, want := range map[float64]int{0.5: 0, 0.95: 1} {
		r := New(Checks(), 1)
		r.Crowded(share, "rce")
		if got := r.Findings(); len(got) != want || want > 0 && (got[0].Check != "memory" || got[0].Key != "rce.micro_batch" ||
			!strings.Contains(got[0].Message, "takes 95 % of the memory")) {
			t.Errorf("%g: %+v", share, got)
		}
	}
}

// A run whose checkpoints cannot fit is stopped; one that may fill the disk, or may end before, is warned.
func TestDisk(t *testing.T) {
	for _, tc := range []struct {
		share  float64
		mayEnd bool
		want   []doctor.Severity
	}{{0.5, false, nil}, {math.NaN(), false, nil}, {0.95, false, []doctor.Severity{doctor.Warning}},
		{1.5, false, []doctor.Severity{doctor.Stop}}, {1.5, true, []doctor.Severity{doctor.Warning}},
		{math.Inf(1), false, []doctor.Severity{doctor.Stop}}} {
		r := New(Checks(), 1)
		r.Disk(1<<30, (1<<30)/tc.share, tc.mayEnd)
		var got []doctor.Severity
		for _, f := range r.Findings() {
			got = append(got, f.Severity)
			if f.Check != "disk" || f.Key != "checkpoint.keep" {
				t.Errorf("%+v", f)
			}
		}
		if !slices.Equal(got, tc.want) || (r.Judge() != nil) != slices.Contains(tc.want, doctor.Stop) {
			t.Errorf("%g of the disk, may end early: %v: %v, want %v", tc.share, tc.mayEnd, got, tc.want)
		}
	}
}

// Groups without a signal get made-up rewards, the same for the same choices, so that a policy that knows
// nothing yet can be tried.
func TestMadeUpRewards(t *testing.T) {
	b := selector.NewBatch(nil, []int{0, 1}, 6, 2)
	for i := range 2 {
		for g := range 6 {
			b.Set(i, g, []int64{int64(g % 3), int64(i)}, 0)
		}
	}
	makeUp(b)
	if !spread(b) {
		t.Error("all rewards are equal")
	}
	for i := range 2 {
		of := b.Rewards[i*6:][:6]
		for g := range 3 {
			if of[g] != of[g+3] || of[g] == of[(g+1)%3] { // else the best two would teach nothing of each other
				t.Errorf("rewards %v, want three that differ, twice", of)
			}
		}
	}
}

// Padding takes nothing away: what a batch knows of its candidates stays with them.
func TestPadding(t *testing.T) {
	b := selector.NewBatch(nil, []int{0}, 2, 1)
	b.Set(0, 0, []int64{7}, 1)
	b.Set(0, 1, []int64{8}, 2)
	b.Truncated, b.Kept, b.Sampled, b.Texts = []bool{false, true}, []float64{1, 0.5}, []float64{-1, -2}, []string{"a", "b"}
	b.Terms = map[string][]float64{"length": {3, 4}}
	want := selector.NewBatch(nil, []int{0}, 3, 2)
	want.Set(0, 0, []int64{7}, 1)
	want.Set(0, 1, []int64{8}, 2)
	want.Truncated, want.Kept, want.Sampled = []bool{false, true, false}, []float64{1, 0.5, 0}, []float64{-1, 0, -2, 0, 0, 0}
	want.Texts, want.Terms = []string{"a", "b", ""}, map[string][]float64{"length": {3, 4, 0}}
	if got := (&part{pad: true, steps: true}).padded(b); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// counted counts its clones.
type counted struct {
	*pointer.Policy
	clones *int
}

func (c counted) Clone() selector.Policy {
	*c.clones++
	return counted{c.Policy.Clone().(*pointer.Policy), c.clones}
}

// TestTheLargestStepHasTheRunsCopies: beside the policy, which is its initial policy too, a trial has the clone that it trains, no more
// than the run will hold: what fits is not refused.
func TestTheLargestStepHasTheRunsCopies(t *testing.T) {
	r := newRig(t)
	clones := 0
	r.trial.Policy = counted{r.trial.Policy.(*pointer.Policy), &clones}
	stage := r.stages[0]
	stage.Largest = stat.Indices
	line, _, err := Memory(context.Background(), r.trial, []Stage{stage}, "cpu")
	if err != nil || !strings.Contains(line, "largest step (rce 8 ×") || clones != 1 {
		t.Errorf("%q, %v, %d clones, want 1", line, err, clones)
	}
}
