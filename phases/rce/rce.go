// Package rce trains by reward-weighted cross entropy, and by supervised fine-tuning, its one-hot case.
package rce

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// Options configures reward-weighted cross entropy (config section rce).
type Options struct {
	phases.Training

	// offline: recorded candidates; online: samples of the policy; enumerated: all selections of few examples
	Rollout string `koanf:"rollout" enum:"offline,online,enumerated"`
	// sampled candidates per query (online)
	GroupSize int `koanf:"group_size" range:"[2,10000]" when:"rollout=online"`
	// temperature of sampling (online), times the policy's own; grpo takes log-probabilities at it too, but for
	// recorded groups
	SampleTemp float64 `koanf:"sample_temperature" range:"(0,inf)" also:"sampling_temperature,rollout_temperature" when:"rollout=online"`
	// τ of the softmax over a query's candidates, annealed by step
	Temperature schedule.TemperatureOptions `koanf:"temperature"`
	// as they are, or by data.normalize, within a query
	Rewards string `koanf:"rewards" enum:"raw,normalized"`
	// cross_entropy of weighted candidates, exact expected_reward, list_net, pairwise by reward gaps, dpo on best and worst
	Loss string `koanf:"loss"`
	// β: log-ratios to the phase's initial policy
	Beta float64 `koanf:"beta" range:"(0,inf)" when:"loss=dpo"`
	// imitate the best candidate only
	Top1Only bool `koanf:"top1_only"`
	// sequence: mean over queries of summed cross entropies; token: mean over scored steps, each weighted as its
	// candidate
	Average string `koanf:"average" enum:"sequence,token"`
	// sampled completions kept in completions.jsonl (online, token policies)
	Completions phases.CompletionOptions `koanf:"completions"`

	// Weights replaces the weights of a batch's candidates [B*G] at a temperature. A program that reproduces another
	// implementation sets it, no user does.
	Weights func(b *selector.Batch, tau float64) ([]float64, group.WeightStats) `koanf:"-"`
}

// DefaultOptions returns the plan's warm-up: τ 2.0 → 0.5, linear.
func DefaultOptions() Options {
	return Options{Training: phases.Training{Epochs: 5, LR: 1e-4}, Rollout: "offline", GroupSize: 8, SampleTemp: 1, Rewards: "normalized",
		Temperature: schedule.DefaultTemperatureOptions(), Loss: "cross_entropy", Beta: 0.1, Average: "sequence",
		Completions: phases.DefaultCompletionOptions()}
}

// SFTOptions configures supervised fine-tuning on the best recorded beam (config section sft).
type SFTOptions struct {
	phases.Training

	// sequence: mean over queries of summed cross entropies; token: mean over all scored steps of the batch
	Average string `koanf:"average" enum:"sequence,token"`
}

// DefaultSFTOptions skips the phase.
func DefaultSFTOptions() SFTOptions {
	return SFTOptions{Training: phases.Training{LR: 1e-4}, Average: "sequence"}
}

// Phase is reward-weighted cross entropy: -Σ_i w_i log π(beam_i), w = softmax(reward / τ) within a query
// (reward-weighted regression, Peters & Schaal 2007; parity spec §5). SFT is its one-hot case. Online, the
// candidates are samples of the current policy: every step moves it towards its better samples.
type Phase struct {
	name      string
	sft       bool // has no τ
	opt       Options
	sched     schedule.LROptions
	optim     phases.OptimOptions
	src       selector.Source
	batch     int
	smoothing float64
	loss      Loss

	env      *phases.Env
	learn    *phases.Learner
	steps    *phases.Steps[*weighted, *inputs]
	text     bool // the policy's steps are tokens
	showNext bool // no batch of this epoch has been kept for reading yet
	total    int

	reference selector.Policy // of loss=dpo; nil elsewhere
}

// New returns the rce phase on recorded beams.
func New(opt Options, optim phases.OptimOptions, sched schedule.LROptions, src selector.Source, batch int, smoothing float64) *Phase {
	loss, _ := find(opt.Loss) // Check reports an unknown name
	return &Phase{name: "rce", opt: opt, optim: optim, sched: sched, src: src, batch: batch, smoothing: smoothing, loss: loss}
}

// NewSFT returns the sft phase: cross entropy on the best recorded beam of each query.
func NewSFT(opt SFTOptions, optim phases.OptimOptions, sched schedule.LROptions, src selector.Source, batch int, smoothing float64) *Phase {
	rce := DefaultOptions()
	rce.Training, rce.Top1Only, rce.Average = opt.Training, true, opt.Average
	p := New(rce, optim, sched, src, batch, smoothing)
	p.name, p.sft = "sft", true
	return p
}

// Named gives the phase the name that it has in the schedule, where that is not rce or sft.
func (r *Phase) Named(name string) *Phase {
	r.name = name
	return r
}

func (r *Phase) Info() phases.Info {
	return phases.Info{Name: r.name, Epochs: r.opt.Epochs, Source: r.src, BatchSize: r.batch, Passes: 1, EpochQueries: r.opt.EpochQueries,
		Online: r.opt.Rollout != "offline"}
}

func (r *Phase) Expected() doctor.Limits {
	lim := r.optim.Expected(r.opt.Training, r.sched)
	lim.Signed = r.loss.Signed
	if !r.sft && r.loss.Weighs {
		lim.Tau = (*doctor.Tau)(&r.opt.Temperature)
	}
	if r.opt.Weights == nil && r.loss.Weighs {
		lim.Imitation = &doctor.Imitation{Best: r.opt.Top1Only, Raw: r.opt.Rewards == "raw", Relative: r.opt.Temperature.Relative,
			PerToken: r.opt.Average == "token"}
	}
	return lim
}

// Check asks whether the options suit the policy.
func (r *Phase) Check(env *phases.Env) error {
	if _, err := find(r.opt.Loss); err != nil {
		return fmt.Errorf("%s.%w", r.name, err)
	}
	if r.loss.Of != nil && r.smoothing > 0 {
		return fmt.Errorf("label smoothing %g: want 0 with %s.loss=%s", r.smoothing, r.name, r.opt.Loss)
	}
	if may, ok := env.Policy.(selector.Stopper); r.opt.Rollout == "enumerated" && ok && may.MayStop() {
		return fmt.Errorf("%s.rollout=enumerated: want a policy without stop, whose selections have one length", r.name)
	}
	if _, text := env.Policy.(selector.TokenPolicy); text && r.smoothing > 0 {
		return fmt.Errorf("label smoothing %g: want 0 with a token policy, whose distributions are never whole", r.smoothing)
	}
	return r.optim.Check(env.Policy.Params(), r.opt.LR, nil)
}

func (r *Phase) Begin(env *phases.Env, totalSteps int) error {
	if err := r.Check(env); err != nil {
		return err
	}
	r.env, r.total = env, totalSteps
	_, r.text = env.Policy.(selector.TokenPolicy)
	if r.loss.Ends {
		r.reference = env.Policy.Clone()
	}
	var err error
	r.learn, err = phases.NewLearner(env, r.name, r.optim, r.opt.LR, r.sched, totalSteps, nil)
	r.steps = phases.NewSteps[*weighted, *inputs](r.learn, r, r.opt.MicroBatch)
	return err
}

// BeginEpoch asks for the first batch of samples to be kept for reading.
func (r *Phase) BeginEpoch(int) { r.showNext = true }

func (r *Phase) EndEpoch() phases.Measured { return nil }

// Metrics are the numbers of a step of imitation (docs/metrics.md).
type Metrics struct {
	phases.OptimizerMetrics
	phases.TextMetrics

	Items               int      `metric:"items"`
	ReaderCalls         *int     `metric:"reader_calls"` // of candidates that are not recorded
	Temperature         *float64 `metric:"temperature"`  // τ; sft has none
	EffectiveSampleSize *float64 `metric:"effective_sample_size"`
	ESSShare            *float64 `metric:"ess_share"`
	SignalShare         *float64 `metric:"signal_share"`
	ScoreSpread         *float64 `metric:"score_spread"`
	MeanReward          *float64 `metric:"mean_reward"` // of sampled candidates
	RewardStd           *float64 `metric:"reward_std"`
}

func (m Metrics) Row() phases.Metrics { return phases.Row(m) }

// weighted is a batch with the weights of its candidates.
type weighted struct {
	step    int
	drawn   *selector.Batch   // [B, G, T]
	batch   *selector.Batch   // its candidates to imitate
	weights []float64         // [B*G] of batch, 1 over each query; or the targets of another loss
	divisor float64           // of the loss
	stats   group.WeightStats // of the weights
	tau     float64
}

func (r *Phase) Step(ctx context.Context, at phases.At) (phases.Measured, error) {
	defer torchx.Scope()()
	of, err := r.steps.Make(ctx, at) // Collect, Loss, backward pass, clipping, AdamW
	if of.Batch != nil {
		err = errors.Join(err, r.keepCompletions(at, of.Batch.drawn))
	}
	if err != nil {
		return nil, err
	}
	batch, stats := of.Batch.batch, of.Batch.stats
	m := Metrics{OptimizerMetrics: of.OptimizerMetrics, Items: batch.NumValid()}
	if !r.sft && r.loss.Weighs {
		m.Temperature = &of.Batch.tau
	}
	if !r.opt.Top1Only && r.loss.Weighs {
		m.EffectiveSampleSize = &stats.ESS
		if stats.Several > 0 {
			m.SignalShare = new(objective.Share(stats.Signal, stats.Several))
		}
		if stats.Signal > 0 {
			m.ESSShare, m.ScoreSpread = &stats.SignalShare, &stats.Spread
		}
	}
	if r.text {
		m.TextMetrics = phases.MeasureTexts(batch, objective.CountSteps(batch))
	}
	if r.opt.Rollout != "offline" {
		drawn := of.Batch.drawn
		m.ReaderCalls = new(drawn.NumValid())
		m.MeanReward, m.RewardStd = new(objective.MeanReward(drawn)), new(advantage.GroupStd(drawn.Rewards, drawn.Valid, drawn.B(), drawn.G))
	}
	return m, nil
}

// Foreseen implements phases.Foreseer: samples two steps ahead come from the policy that the next step makes.
func (r *Phase) Foreseen(at phases.At) (next []phases.At, inputs bool) {
	if r.opt.Rollout == "online" {
		return at.Next[:1], true
	}
	return at.Next, true
}

// Collect implements phases.Algorithm: candidates and their weights.
func (r *Phase) Collect(_ context.Context, at phases.At) (*weighted, error) {
	drawn, err := r.candidates(at) // [B, G, T]
	if err != nil {
		return nil, err
	}
	batch, tau := drawn, r.opt.Temperature.At(at.Step, r.total) // annealed by step
	if !r.loss.Weighs {
		return r.untempered(at.Step, drawn), nil
	}
	weights, stats := r.weights(batch, tau) // [B*G], 1 over each query
	if r.text && r.opt.Top1Only {
		batch, weights = imitated(batch, weights) // tokens that weigh nothing cost as much as others
	}
	divisor := float64(max(stats.Groups, 1))
	if r.opt.Average == "token" {
		divisor = weightedSteps(weights, batch)
	}
	return &weighted{at.Step, drawn, batch, weights, divisor, stats, tau}, nil
}

// untempered is the batch of a loss whose targets are no weights.
func (r *Phase) untempered(step int, drawn *selector.Batch) *weighted {
	out := &weighted{step: step, drawn: drawn, batch: drawn}
	if r.loss.Ends {
		out.batch, out.weights, out.stats.Groups = ends(drawn)
	} else {
		out.weights, out.stats.Groups = r.loss.Targets(r.scaled(drawn), drawn.Valid, drawn.G)
	}
	out.divisor = float64(max(out.stats.Groups, 1))
	return out
}

// candidates returns the recorded candidates of queries, or samples of the policy with their rewards.
func (r *Phase) candidates(at phases.At) (b *selector.Batch, err error) {
	if r.opt.Rollout == "offline" {
		b = r.src.Recorded(at.Queries)
	} else if r.opt.Rollout == "enumerated" {
		if b, err = phases.Enumerate(r.src, at.Queries, r.env.Data.Shots); err != nil {
			return nil, err
		}
	} else if b, err = r.env.Draw(r.src, at.Queries, func(queries []int, shard ...int) (*selector.Batch, error) {
		return phases.SampleGroups(r.env.Policy, r.src, queries, r.opt.GroupSize, r.env.Data.Shots, r.opt.SampleTemp,
			rng.Key(r.env.Seed, "rollout "+r.name, slices.Concat([]int{at.Step}, shard)...))
	}); err != nil {
		return nil, err
	}
	return b, phases.CheckRewards(b, r.env.AllowNonFinite)
}

// keepCompletions keeps samples for reading, where they are wanted.
func (r *Phase) keepCompletions(at phases.At, b *selector.Batch) error {
	show := r.showNext && r.opt.Completions.Groups > 0
	r.showNext = false
	if !show || !r.text || r.opt.Rollout != "online" {
		return nil
	}
	return r.opt.Completions.Record(r.env.Rec, r.name, at.Epoch, at.Step, b, r.env.Data.Advantage)
}

// inputs are a part of a batch and what its loss reads on the device, once the step's upload was sent.
type inputs struct {
	batch        *selector.Batch
	opt          selector.ForwardOptions
	policy       func(selector.ForwardOptions) selector.Output // its forward pass, with gradient
	weight       torchx.Tensor                                 // [B, G]; [B, G, G] of pairs
	outside      torchx.Tensor                                 // [B, G] −1e9 where there is no candidate; undefined for cross entropy
	reference    func(selector.ForwardOptions) selector.Output // of loss=dpo; nil elsewhere
	share, minus *torchx.Factor                                // ±1/divisor of the whole batch
}

// Size implements phases.Algorithm.
func (r *Phase) Size(of *weighted) int { return of.batch.B() }

// Inputs implements phases.Algorithm: the gradients of the batch's parts add up. Dropout masks belong to queries and candidates: they are
// those of the whole batch.
func (r *Phase) Inputs(of *weighted, span phases.Span, up *phases.Inputs) (*inputs, bool) {
	if r.smoothing > 0 {
		up.Refuse("label smoothing masks on the host")
	}
	b := of.batch.Part(span.From, span.To)
	if b.NumValid() == 0 {
		return nil, false
	}
	opt := selector.ForwardOptions{Train: r.reference == nil, DropoutSeed: rng.Key(r.env.Seed, "dropout "+r.name, of.step),
		Dist: r.smoothing > 0}
	on := r.learn.Params.Flat()
	in := &inputs{batch: b, opt: opt, policy: up.Forward(r.env.Policy, b, opt), share: up.Upload.Factor(1/of.divisor, on),
		minus: up.Upload.Factor(-1/of.divisor, on)}
	r.target(of, b, span.From, span.To, in, up)
	return in, true
}

// Loss implements phases.Algorithm: -Σ weight·log π / divisor of a part, or that of another loss (losses.go), a scalar with gradient.
func (r *Phase) Loss(in *inputs) (torchx.Tensor, []torchx.Tensor) {
	out := in.policy(in.opt)
	if r.loss.Of != nil {
		return r.compared(out, in), nil
	}
	if r.smoothing == 0 && objective.OneKernel(out.LogP) {
		return torchx.WeightedLogp(out.LogP, in.weight, in.minus), nil
	}
	ce := objective.CrossEntropy(out, in.batch, r.smoothing) // [B, G]
	return in.share.Times(torchx.Sum(torchx.Mul(ce, in.weight))), nil
}

// weightedSteps is the number of scored steps, each counted with its candidate's weight.
func weightedSteps(weights []float64, b *selector.Batch) float64 {
	sum := 0.0
	for at, w := range weights {
		if b.Valid[at] {
			sum += w * float64(len(b.Scored(at/b.G, at%b.G)))
		}
	}
	if sum == 0 {
		return 1
	}
	return sum
}

// weights are those [B*G] of a batch's candidates under temperature tau.
func (r *Phase) weights(b *selector.Batch, tau float64) ([]float64, group.WeightStats) {
	switch {
	case r.opt.Weights != nil:
		return r.opt.Weights(b, tau)
	case r.opt.Top1Only:
		return top1Weights(b)
	}
	return group.Weights(r.scaled(b), b.Valid, b.B(), b.G, tau, r.opt.Temperature.Relative)
}

// scaled returns the rewards of a batch as rce.rewards has them.
func (r *Phase) scaled(b *selector.Batch) []float64 {
	if normalize := r.env.Data.Normalize; r.opt.Rewards == "normalized" && normalize != nil {
		return objective.NormalizeGroups(b, normalize)
	}
	return b.Rewards
}

// top1Weights puts all weight on the best recorded candidate of each query, the first on ties.
func top1Weights(b *selector.Batch) ([]float64, group.WeightStats) {
	sel := advantage.TopK(b.Rewards, b.Valid, b.B(), b.G, 1)
	w := make([]float64, len(b.Valid))
	stats := group.WeightStats{ESS: 1}
	for i := range b.B() {
		if sel.Valid[i] {
			w[i*b.G+sel.Index[i]] = 1
			stats.Groups++
		}
	}
	return w, stats
}

// imitated keeps the one candidate of each query that has a weight.
func imitated(b *selector.Batch, weights []float64) (*selector.Batch, []float64) {
	index, valid, kept := make([]int, b.B()), make([]bool, b.B()), make([]float64, b.B())
	for at, w := range weights {
		if w > 0 {
			index[at/b.G], valid[at/b.G], kept[at/b.G] = at%b.G, true, w
		}
	}
	return b.Take(1, index, valid), kept
}

// State has the reference of loss=dpo too.
func (r *Phase) State() phases.PhaseState {
	s := r.learn.State()
	if r.reference != nil {
		s.Frozen["reference"] = r.reference.Params().Values()
	}
	return s
}

func (r *Phase) Restore(s phases.PhaseState) error {
	if r.reference != nil {
		if err := s.RestorePolicy("reference", r.reference); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return r.learn.Restore(s)
}

func (r *Phase) End() {
	r.learn.Free()
	if r.reference != nil {
		r.reference.Free()
	}
}
