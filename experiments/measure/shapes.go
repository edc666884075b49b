package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"fulcrum/experiments/bench"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// PrintShape measures one case of a published shape and prints a bench.ShapeMeasurement.
func PrintShape(ctx context.Context, out io.Writer, text string) (err error) {
	defer torchx.Recover(&err)
	var spec bench.ShapeSpec
	if err := jsonwords.Unmarshal([]byte(text), &spec); err != nil {
		return usage.Errorf("measure-shape: %v", err)
	}
	device, err := open(spec.Threads, spec.Device)
	if err != nil {
		return err
	}
	b, err := newShapeBench(spec.Workload, device)
	if err != nil {
		return err
	}
	defer b.policy.Free()
	work := map[string]func(context.Context) (bench.ShapeMeasurement, error){"decode": b.decode, "update": b.update, "step": b.step}[spec.Case]
	if work == nil {
		return usage.Errorf("measure-shape: no case %s", spec.Case)
	}
	m, err := b.repeat(ctx, spec.Repeats, work)
	if err != nil {
		return err
	}
	m.Workload, m.Case, m.Who, m.DType = spec.Workload.Name, spec.Case, "fulcrum", spec.Workload.DType
	m.Whole, m.Trained = spec.Workload.Whole, b.policy.Params().Numel()
	return json.NewEncoder(out).Encode(m)
}

// shapeBench is a model of random weights and the prompts it is asked.
type shapeBench struct {
	bench.ShapeWorkload
	policy *vl.Policy
	cuda   int // the device's number; -1: the CPU
	name   string
	pixels []float32 // of every image: what they show changes no time
	round  int       // pictures of another round are other pictures to the caches
	phase  *grpo.Phase
	clock  *shares
	steps  int
}

func newShapeBench(w bench.ShapeWorkload, device string) (*shapeBench, error) {
	opt := vl.DefaultOptions()
	opt.DType, opt.LoRA.Rank = w.DType, w.Rank
	if w.Whole != "" { // as exp=qwen2_5_vl_video does, and the vision tower
		opt.LoRA.Enabled, opt.GradientCheckpointing = false, true
		opt.TuneMMLLM, opt.TuneMMVision, opt.TuneMMMLP = true, w.Vision != nil, w.Vision != nil
	}
	config, err := json.Marshal(shapeConfig(w))
	if err != nil {
		return nil, err
	}
	model, err := vl.NewFrozen(opt, config, device, 1)
	if err != nil {
		return nil, err
	}
	b := &shapeBench{ShapeWorkload: w, policy: vl.NewPolicy(model), cuda: -1, name: device}
	if n, ok := torchx.CUDAIndex(device); ok {
		b.cuda = n
		d, err := torchx.DescribeCUDA(n)
		if err != nil {
			return nil, err
		}
		b.name = d.Name
	}
	if v := model.Config().Vision; v != nil {
		side := w.Vision.Image / v.Patch
		b.pixels = make([]float32, side*side*v.PatchSize())
		r := rng.New(1, "pixels")
		for i := range b.pixels {
			b.pixels[i] = float32(r.NormFloat64())
		}
	}
	return b, nil
}

// shapeConfig is the config.json of a shape. No token ends a completion: all are equally long.
func shapeConfig(w bench.ShapeWorkload) map[string]any {
	half, last := w.Hidden/max(w.Heads, 1)/2, w.Vocab
	across := (half - half/4) / 2
	c := map[string]any{"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "torch_dtype": w.DType,
		"vocab_size": w.Vocab, "hidden_size": w.Hidden, "intermediate_size": w.MLP, "num_hidden_layers": w.Layers,
		"num_attention_heads": w.Heads, "num_key_value_heads": w.KVHeads, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
		"tie_word_embeddings": true, "max_position_embeddings": 32768}
	if v := w.Vision; v != nil {
		c["architectures"], c["model_type"] = []string{"Qwen2_5_VLForConditionalGeneration"}, "qwen2_5_vl"
		c["rope_scaling"] = map[string]any{"type": "mrope", "mrope_section": []int{half - 2*across, across, across}}
		c["image_token_id"], c["video_token_id"], c["vision_start_token_id"], c["vision_end_token_id"] = last-1, last-2, last-3, last-4
		c["vision_config"] = map[string]any{"depth": v.Depth, "hidden_size": v.Hidden, "intermediate_size": v.MLP, "num_heads": v.Heads,
			"out_hidden_size": w.Hidden, "window_size": v.Window, "fullatt_block_indexes": v.Full, "tokens_per_second": 2}
	}
	return c
}

// repeat runs a case once uncounted, then repeats times, and returns the medians.
func (b *shapeBench) repeat(ctx context.Context, repeats int,
	work func(context.Context) (bench.ShapeMeasurement, error)) (m bench.ShapeMeasurement, err error) {
	var all []bench.ShapeMeasurement
	for i := range repeats + 1 {
		if err := ctx.Err(); err != nil {
			return m, context.Cause(ctx)
		}
		if i == 1 && b.cuda >= 0 {
			if _, err := torchx.MemoryOfCUDA(b.cuda, true); err != nil {
				return m, err
			}
		}
		clock := startClock()
		if m, err = work(ctx); err != nil {
			return m, err
		}
		m.Seconds, _ = clock.read()
		all = append(all, m)
		b.round++
	}
	first, counted := all[0].Seconds, all[1:]
	of := func(f func(bench.ShapeMeasurement) float64) float64 {
		return stat.Median(list.Map(counted, f))
	}
	m = counted[len(counted)-1]
	m.First, m.Device = first, b.name
	m.Seconds = of(func(m bench.ShapeMeasurement) float64 { return m.Seconds })
	m.Generation = of(func(m bench.ShapeMeasurement) float64 { return m.Generation / m.Seconds })
	m.LogProbs = of(func(m bench.ShapeMeasurement) float64 { return m.LogProbs / m.Seconds })
	m.Update = of(func(m bench.ShapeMeasurement) float64 { return m.Update / m.Seconds })
	m.PerSecond = float64(m.Tokens) / m.Seconds
	if peak := bench.Peak(b.name); peak > 0 && b.DType != "float32" {
		m.MFU = m.TFLOP * 1e12 / m.Seconds / peak
	}
	if b.cuda >= 0 {
		memory, err := torchx.MemoryOfCUDA(b.cuda, false)
		if err != nil {
			return m, err
		}
		m.PeakGB, m.ReservedGB = memory.AllocatedMax/1e9, memory.ReservedMax/1e9
	}
	return m, nil
}

// decode samples a completion of every prompt.
func (b *shapeBench) decode(context.Context) (m bench.ShapeMeasurement, err error) {
	opt := vl.GenerateOptions{SamplingOptions: vl.DefaultSampling(), Seed: 1, IgnoreEOS: true}
	opt.MaxNewTokens = b.New
	out, err := tokens.Generate(b.policy.Model(), list.Make(b.Sequences, b.prompt), 1, opt)
	for _, of := range out {
		m.Tokens += len(of[0].IDs)
	}
	return m, err
}

// update is one optimizer step on the completions of one pass.
func (b *shapeBench) update(context.Context) (m bench.ShapeMeasurement, err error) {
	b.round = 0 // the features of frozen towers are computed once a run
	queries, n := stat.Indices(b.Micro), b.prompt(0).IDs
	batch := selector.NewBatch(b, queries, b.Group, b.New)
	r := rng.New(1, "completions")
	for i := range queries {
		for g := range b.Group {
			batch.Set(i, g, b.ids(r, b.New), 0)
		}
	}
	params := b.policy.Params()
	defer torchx.Scope()()
	logp := b.policy.Forward(batch, selector.ForwardOptions{Train: true}).LogP // [B, G, T]
	ratio := torchx.Exp(torchx.Sub(logp, torchx.Detach(logp)))
	params.ZeroGrad()
	torchx.Backward(torchx.Neg(torchx.Mean(torchx.Minimum(ratio, torchx.Clamp(ratio, 0.8, 1.2)))))
	adam := torchx.NewAdamWKept(cmp.Or(b.Whole, torchx.KeepFloat32), params, 0, 1, 0.9, 0.999, 1e-8, 0.01)
	defer adam.Free()
	adam.Step(1e-6, min(1, 1/(params.GradNorm()+1e-6)))

	m.Tokens = b.Micro * b.Group * b.New
	rows := b.Micro * (len(n) + b.Group*(b.New-1))
	causal := func(n int) int { return n * (n + 1) / 2 }
	seen := b.Micro * (causal(len(n)) + b.Group*((b.New-1)*len(n)+causal(b.New-1)))
	m.TFLOP = b.FLOPs(rows, seen, m.Tokens, true) / 1e12
	return m, nil
}

// step is a GRPO step as a run makes it, with its own clock around what the policies are asked.
func (b *shapeBench) step(ctx context.Context) (m bench.ShapeMeasurement, err error) {
	if b.phase == nil {
		if err := b.begin(); err != nil {
			return m, err
		}
	}
	*b.clock = shares{}
	start := time.Now()
	defer torchx.Scope()()
	measured, err := b.phase.Step(ctx, phases.At{Epoch: 1, Step: b.steps, Queries: stat.Indices(b.Prompts)})
	if err != nil {
		return m, err
	}
	synchronize()
	b.steps++
	m.Gap, _ = measured.Row()["sampler_gap"].(float64)
	m.Tokens = b.clock.tokens
	m.Generation, m.LogProbs = b.clock.generation.Seconds(), b.clock.logProbs.Seconds()
	m.Update = time.Since(start).Seconds() - m.Generation - m.LogProbs
	return m, nil
}

// begin starts the phase of grpo=tokens grpo/kl=k3.
func (b *shapeBench) begin() error {
	b.clock = &shares{}
	opt := grpo.DefaultOptions()
	opt.Rollout, opt.Ratio, opt.OldPolicy, opt.GroupSize, opt.MicroBatch = "online", "token", "batch", b.Group, &b.Micro
	opt.KL.Beta, opt.KL.Estimator, opt.KL.Controller, opt.KL.Reference = 0.04, "k3", "fixed", "init"
	opt.Completions.Groups = 0
	policy := &timedPolicy{Policy: b.policy, clock: b.clock}
	optim := phases.DefaultOptimOptions()
	optim.State = cmp.Or(b.Whole, optim.State)
	b.phase = grpo.New("grpo", opt, optim, schedule.DefaultLROptions(), b, b.Prompts)
	env := &phases.Env{Policy: policy, Initial: policy.Clone(), Data: phases.Data{Shots: b.New}, Seed: 1}
	if err := b.phase.Begin(env, 1000); err != nil {
		return err
	}
	phases.BeginEpoch(b.phase, 1)
	return nil
}

// shares are the parts of a step's time; the update is the rest.
type shares struct {
	generation, logProbs time.Duration
	tokens               int // generated
}

// timedPolicy is a policy that notes how long sampling and frozen forward passes take.
type timedPolicy struct {
	*vl.Policy
	clock  *shares
	frozen bool
}

// during adds the time until the returned function is called.
func during(to *time.Duration) (end func()) {
	synchronize()
	start := time.Now()
	return func() {
		synchronize()
		*to += time.Since(start)
	}
}

func (p *timedPolicy) Sample(src selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	defer during(&p.clock.generation)()
	b := p.Policy.Sample(src, queries, g, t, temperature, seed)
	for i := range b.B() {
		for j := range b.G {
			p.clock.tokens += len(b.Scored(i, j))
		}
	}
	return b
}

func (p *timedPolicy) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	if p.frozen {
		defer during(&p.clock.logProbs)()
	}
	return p.Policy.Forward(b, opt)
}

func (p *timedPolicy) KL(b *selector.Batch, reference selector.Policy) torchx.Tensor {
	return p.Policy.KL(b, reference.(*timedPolicy).Policy)
}

// Clone implements selector.Policy. Nobody trains a clone here.
func (p *timedPolicy) Clone() selector.Policy {
	return &timedPolicy{Policy: p.Policy.Clone().(*vl.Policy), clock: p.clock, frozen: true}
}

// Name, Len, ID, Recorded, Prompt, Score, Accuracy and CanScore make the benchmark a source of prompts, whose rewards are noise.
func (b *shapeBench) Name() string   { return "bench" }
func (b *shapeBench) Len() int       { return max(b.Prompts, b.Sequences, b.Micro) }
func (b *shapeBench) ID(i int) int64 { return int64(i) }
func (b *shapeBench) CanScore() bool { return true }
func (b *shapeBench) Recorded(queries []int) *selector.Batch {
	return selector.NewBatch(b, queries, 0, 1)
}
func (b *shapeBench) Prompt(i int) (*processor.Prompt, error) { return b.prompt(i), nil }

func (b *shapeBench) Score(of *selector.Batch) error {
	r := rng.New(1, "rewards", b.steps)
	for i := range of.Rewards {
		of.Rewards[i] = float64(r.IntN(2))
	}
	of.Texts = make([]string, len(of.Valid))
	return nil
}

func (b *shapeBench) Accuracy(of *selector.Batch) ([]float64, error) { return nil, b.Score(of) }

// prompt is text, behind an image where the model sees.
func (b *shapeBench) prompt(i int) *processor.Prompt {
	p := &processor.Prompt{IDs: b.ids(rng.New(1, "prompt", i), b.ShapeWorkload.Prompt)}
	v := b.policy.Model().(*vl.Model).Config()
	if v.Vision == nil {
		return p
	}
	side := b.Vision.Image / v.Vision.Patch
	image := slices.Repeat([]int64{v.ImageToken}, side*side/v.Vision.Cell())
	p.IDs = slices.Concat([]int64{v.VisionStart}, image, []int64{v.VisionEnd}, p.IDs)
	p.Images = []pixels.Patches{{Data: b.pixels, Rows: side * side, Grid: [3]int{1, side, side}, Key: strings.Join([]string{"bench",
		fmt.Sprint(b.round), fmt.Sprint(i)}, " ")}}
	return p
}

// ids returns n tokens that mean nothing.
func (b *shapeBench) ids(r *rand.Rand, n int) []int64 {
	return list.Make(n, func(int) int64 { return r.Int64N(int64(b.Vocab) - 4) }) // none of the placeholders
}
