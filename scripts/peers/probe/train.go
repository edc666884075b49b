package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

func sine(i int) float64 { return math.Sin(float64(i)) }
func nopass() *lora.Pass { return &lora.Pass{} }

// Training are optimizer steps of a phase on completions in hand. With grpo.Options.Rollout online they stand for samples
// of the old policy.
type Training struct {
	Phase     string          // grpo, rce or sft
	Settings  json.RawMessage // the phase's options
	Optim     json.RawMessage // phases.OptimOptions
	Steps     int
	Batch     int         // prompts a step
	Rewards   [][]float64 // of each prompt's completions
	Truncated [][]bool
	MaxTokens int // longest completion allowed
	Repeats   int // further steps that are timed
	Shards    int // of a step; 0: it is not cut
}

// given is a source of the job's completions, and the policy that samples them.
type given[P any] struct {
	*tokens.Policy[P]
	prompts []P
	batch   *selector.Batch
}

func (g *given[P]) Name() string                           { return "given" }
func (g *given[P]) Len() int                               { return len(g.prompts) }
func (g *given[P]) ID(i int) int64                         { return int64(i) }
func (g *given[P]) Prompt(i int) (P, error)                { return g.prompts[i], nil }
func (g *given[P]) Recorded(queries []int) *selector.Batch { return g.batch.Groups(queries) }
func (g *given[P]) CanScore() bool                         { return true }
func (g *given[P]) Score(*selector.Batch) error            { return nil }

func (g *given[P]) Accuracy(*selector.Batch) ([]float64, error) { return nil, nil }

func (g *given[P]) Clone() selector.Policy {
	c := *g
	c.Policy = g.Policy.Clone().(*tokens.Policy[P])
	return &c
}

func (g *given[P]) Sample(_ selector.Source, queries []int, _, _ int, _ float64, _ uint64) *selector.Batch {
	return g.Recorded(queries)
}

// recorder keeps advantages.
type recorder struct{ advantages []float64 }

func (r *recorder) Record(string, string, int, int, int, map[string]any) error { return nil }
func (r *recorder) Scores(phases.Scores) error                                 { return nil }
func (r *recorder) Mark() (rows, evals, completions int, err error)            { return 0, 0, 0, nil }
func (r *recorder) Completions(_ string, _, _ int, rows []phases.Completion) error {
	for _, c := range rows {
		r.advantages = append(r.advantages, c.Advantage)
	}
	return nil
}

// gradients keeps the gradient of a step, which the optimizer clears.
type gradients struct{ last []float32 }

func (g *gradients) Begin(string, *phases.Learner) {}
func (g *gradients) Backward(l *phases.Learner) {
	g.last = slices.Clone(torchx.Data[float32](l.Params.Grad()))
}
func (g *gradients) Stepped(*phases.Learner) *float64                    { return nil }
func (g *gradients) End(*phases.Learner)                                 {}
func (g *gradients) State(*phases.Learner) map[string][]float32          { return nil }
func (g *gradients) Restore(*phases.Learner, map[string][]float32) error { return nil }

func train[P any](j *Job, a *Answer, policy *tokens.Policy[P], prompts []P) error {
	t := j.Train
	src := &given[P]{Policy: policy, prompts: prompts}
	size, longest := 1, 1
	for _, group := range j.Completions {
		size = max(size, len(group))
		for _, ids := range group {
			longest = max(longest, len(ids))
		}
	}
	all := make([]int, len(prompts))
	for i := range all {
		all[i] = i
	}
	src.batch = selector.NewBatch(src, all, size, longest)
	src.batch.Truncated = make([]bool, len(src.batch.Valid))
	for i, group := range j.Completions {
		for c, ids := range group {
			reward := 1.0
			if t.Rewards != nil {
				reward = t.Rewards[i][c]
			}
			src.batch.Set(i, c, ids, reward)
			src.batch.Truncated[i*size+c] = t.Truncated != nil && t.Truncated[i][c]
		}
	}
	initial := src.Clone()
	defer initial.Free()
	rec, grads := &recorder{}, &gradients{}
	env := &phases.Env{Policy: src, Initial: initial, Seed: j.Seed, Rec: rec, Shards: t.Shards, Data: phases.Data{Shots: t.MaxTokens}}
	if j.Out != "" {
		env.Gradients = grads
	}
	phase, passes, err := t.phase(env, src)
	if err != nil {
		return err
	}
	if err := phase.Begin(env, t.Steps); err != nil {
		return err
	}
	defer phase.End()
	phases.BeginEpoch(phase, 1)
	step := func(i int) (map[string]any, error) {
		at := i / passes * t.Batch % len(prompts)
		m, err := phase.Step(context.Background(), phases.At{Epoch: 1, Step: i, Pass: i % passes, Queries: all[at:min(at+t.Batch, len(prompts))]})
		if err != nil {
			return nil, err
		}
		return m.Row(), nil
	}
	var out []tensorfile.Tensor
	params := src.Params()
	for i := range t.Steps {
		row, err := step(i)
		if err != nil {
			return err
		}
		a.Steps = append(a.Steps, row)
		if j.Out == "" {
			continue
		}
		for _, kept := range []struct {
			what   string
			values []float32
		}{{"gradient", grads.last}, {"weight", slices.Clone(params.Values())}} {
			for _, name := range params.Names() {
				from, to := params.Range(name)
				out = append(out, tensorfile.FromFloat32s(fmt.Sprintf("%d/%s/%s", i, kept.what, name), params.Shape(name), kept.values[from:to]))
			}
		}
	}
	a.Advantages = rec.advantages
	for i := range t.Repeats * passes {
		start := time.Now()
		if _, err := step(t.Steps + i); err != nil {
			return err
		}
		a.Seconds = append(a.Seconds, time.Since(start).Seconds())
	}
	if j.Out == "" {
		return nil
	}
	return tensorfile.WriteSafetensors(j.Out, out, nil)
}

// phase makes the phase of a job. Nothing is clipped or decayed unless the job says so, and the learning rate is constant.
func (t Training) phase(env *phases.Env, src selector.Source) (p phases.Phase, passes int, err error) {
	optim := phases.DefaultOptimOptions()
	optim.GradClipNorm, optim.WeightDecay = 0, 0
	decode := func(from json.RawMessage, into any) {
		if err == nil && from != nil {
			err = json.Unmarshal(from, into)
		}
	}
	decode(t.Optim, &optim)
	constant := schedule.LROptions{Name: "constant"}
	switch t.Phase {
	case "grpo":
		opt := grpo.DefaultOptions()
		opt.Ratio, opt.KL.Estimator, opt.KL.Controller = "token", "k3", "fixed"
		opt.Completions = phases.CompletionOptions{Groups: src.Len()}
		decode(t.Settings, &opt)
		if err == nil {
			err = opt.Validate()
		}
		env.Data.Advantage = opt.Advantage
		return grpo.New("grpo", opt, optim, constant, src, t.Batch), opt.NumIterations, err
	case "rce":
		opt := rce.DefaultOptions()
		decode(t.Settings, &opt)
		env.Data.Advantage = advantage.DefaultOptions()
		return rce.New(opt, optim, constant, src, t.Batch, 0), 1, err
	case "sft":
		opt := rce.DefaultSFTOptions()
		decode(t.Settings, &opt)
		return rce.NewSFT(opt, optim, constant, src, t.Batch, 0), 1, err
	}
	return nil, 0, fmt.Errorf("no phase %q", t.Phase)
}
