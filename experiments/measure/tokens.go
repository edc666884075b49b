package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"fulcrum/experiments/bench"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/selector"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/processor"
)

// PrintTokens measures one case of one size and prints a bench.TokenMeasurement.
func PrintTokens(ctx context.Context, out io.Writer, text string) (err error) {
	defer torchx.Recover(&err)
	var spec bench.TokenSpec
	if err := jsonwords.Unmarshal([]byte(text), &spec); err != nil {
		return usage.Errorf("measure-tokens: %v", err)
	}
	at := slices.IndexFunc(bench.TokenWorkloads(), func(w bench.TokenWorkload) bool { return w.Name == spec.Workload })
	which := slices.IndexFunc(bench.TokenCases(), func(c bench.TokenCase) bool { return c.Name == spec.Case })
	if at < 0 || which < 0 {
		return usage.Errorf("measure-tokens: no case %s of %s", spec.Case, spec.Workload)
	}
	device, err := open(spec.Threads, spec.Device)
	if err != nil {
		return err
	}
	w, c := bench.TokenWorkloads()[at], bench.TokenCases()[which]
	b, err := newTokenBench(w, device, c.Name == "lora" || c.Name == "grpo")
	if err != nil {
		return err
	}
	defer b.policy.Free()
	run, free := b.work(c)
	defer free()
	var m bench.TokenMeasurement
	var wall, cpu []float64
	for i := range spec.Repeats + 1 { // the first does not count
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		clock := startClock()
		if err := run(); err != nil {
			return err
		}
		if seconds, used := clock.read(); i > 0 {
			wall, cpu = append(wall, c.Rate(w, seconds)), append(cpu, c.Rate(w, used))
		}
	}
	m.Value, m.CPU, m.PeakMB = stat.Middle(wall), stat.Middle(cpu), hostmem.Peak()/mb
	return json.NewEncoder(out).Encode(m)
}

// tokenBench is a policy of random weights and its prompts.
type tokenBench struct {
	bench.TokenWorkload
	policy *vl.Policy
}

// newTokenBench makes a model of the workload's size: all of it trained, or adapters of the attention.
func newTokenBench(w bench.TokenWorkload, device string, adapters bool) (*tokenBench, error) {
	opt := vl.DefaultOptions()
	opt.DType = "float32"
	opt.Scratch.HiddenSize, opt.Scratch.IntermediateSize = w.Hidden, w.MLP
	opt.Scratch.Layers, opt.Scratch.Heads, opt.Scratch.KVHeads = w.Layers, w.Heads, w.KVHeads
	// nothing looks
	opt.Scratch.Vision = vl.ScratchVisionOptions{Depth: 1, HiddenSize: 4, IntermediateSize: 1, Heads: 1, Window: 112, FullBlocks: []int{0}}
	last := int64(w.Vocab)
	vocab := vl.Vocabulary{Size: w.Vocab, EOS: []int64{last - 1}, Pad: last - 2, Image: last - 3, Video: last - 4,
		VisionStart: last - 5, VisionEnd: last - 6, VisionPad: last - 7}
	model, err := vl.New(opt, vocab, device, 1)
	if err != nil {
		return nil, err
	}
	if !adapters {
		return &tokenBench{w, vl.NewPolicy(model)}, nil
	}
	defer model.Free()
	dir, remove, err := interrupt.Folder("", "fulcrum-bench-")
	if err != nil {
		return nil, err
	}
	defer remove() // the weights stay mapped
	if err := model.SaveMerged(dir, "float32"); err != nil {
		return nil, err
	}
	opt.Path, opt.LoRA.Enabled, opt.LoRA.Rank = &dir, true, w.Rank
	if model, err = vl.Open(opt, device, 1, nil); err != nil {
		return nil, err
	}
	return &tokenBench{w, vl.NewPolicy(model)}, nil
}

// ids returns n tokens that mean nothing.
func (b *tokenBench) ids(name string, n int) []int64 {
	r := rng.New(1, name)
	out := make([]int64, n)
	for i := range out {
		out[i] = r.Int64N(int64(b.Vocab) - 7) // none of the special ones
	}
	return out
}

// benchPrompts is a source of prompts.
type benchPrompts []*processor.Prompt

func (a benchPrompts) Name() string   { return "bench" }
func (a benchPrompts) Len() int       { return len(a) }
func (a benchPrompts) ID(i int) int64 { return int64(i) }
func (a benchPrompts) Recorded(queries []int) *selector.Batch {
	return selector.NewBatch(a, queries, 0, 1)
}
func (a benchPrompts) Prompt(i int) (*processor.Prompt, error) { return a[i], nil }

// batch returns completions of a prompt, as long as each other.
func (b *tokenBench) batch(prompt, completion, group int) *selector.Batch {
	src := benchPrompts{{IDs: b.ids("prompt", prompt)}}
	out := selector.NewBatch(src, []int{0}, group, completion)
	for g := range group {
		out.Set(0, g, b.ids(fmt.Sprint("completion ", g), completion), 0)
	}
	return out
}

// work returns a case's repetition.
func (b *tokenBench) work(c bench.TokenCase) (run func() error, free func()) {
	params, model := b.policy.Params(), b.policy.Model()
	switch c.Name {
	case "forward": // of a sequence: its first token is the prompt
		groups := []vl.Group{{Prompt: &processor.Prompt{IDs: b.ids("prompt", 1)}, Completions: [][]int64{b.ids("completion", b.Tokens-1)}}}
		return func() error {
			_, err := tokens.LogProbs(model, groups)
			return err
		}, func() {}
	case "backward", "lora":
		batch := b.batch(1, b.Tokens-1, 1)
		return func() error {
			defer torchx.Scope()()
			params.ZeroGrad()
			torchx.Backward(torchx.Neg(torchx.Mean(b.policy.Forward(batch, selector.ForwardOptions{Train: true}).LogP)))
			return nil
		}, func() {}
	case "grpo":
		return b.policyStep()
	}
	var prompts []*processor.Prompt
	for i := range c.Batch {
		prompts = append(prompts, &processor.Prompt{IDs: b.ids(fmt.Sprint("prompt ", i), b.Prompt)})
	}
	opt := vl.GenerateOptions{SamplingOptions: vl.DefaultSampling(), IgnoreEOS: true}
	opt.MaxNewTokens, opt.Temperature = b.Generated, 0
	return func() error {
		out, err := tokens.Generate(model, prompts, 1, opt)
		if err == nil && len(out[0][0].IDs) != b.Generated {
			err = fmt.Errorf("generated %d tokens, want %d", len(out[0][0].IDs), b.Generated)
		}
		return err
	}, func() {}
}

// policyStep is GRPO's step on given rollouts, old and reference log-probabilities, as the peer program has it: clipped
// ratios a token, k3 KL, gradient clipping, AdamW.
func (b *tokenBench) policyStep() (run func() error, free func()) {
	params := b.policy.Params()
	batch := b.batch(b.Tokens/2, b.Tokens/2, b.Group)
	adam := torchx.NewAdamW(params, 0.9, 0.999, 1e-8, 0.01)
	var old torchx.Tensor
	func() {
		defer torchx.Scope()()
		defer torchx.NoGrad()()
		old = torchx.Own(b.policy.Forward(batch, selector.ForwardOptions{}).LogP)
	}()
	run = func() error {
		defer torchx.Scope()()
		logp := b.policy.Forward(batch, selector.ForwardOptions{Train: true}).LogP // [1, G, T]
		adv := torchx.ToLike(torchx.From([]float32{1, -1, 0.5, -0.5}, 1, b.Group, 1), logp)
		ratio := torchx.Exp(torchx.Sub(logp, old))
		surrogate := torchx.Minimum(torchx.Mul(ratio, adv), torchx.Mul(torchx.Clamp(ratio, 0.8, 1.2), adv))
		delta := torchx.Sub(old, logp)
		kl := torchx.AddScalar(torchx.Sub(torchx.Exp(delta), delta), -1)
		params.ZeroGrad()
		torchx.Backward(torchx.Mean(torchx.Sub(torchx.Scale(kl, 0.04), surrogate)))
		adam.Step(1e-6, min(1, 1/(params.GradNorm()+1e-6)))
		return nil
	}
	return run, func() {
		adam.Free()
		old.Free()
	}
}
