// Package rce trains by reward-weighted cross entropy, and by supervised fine-tuning, its one-hot case.
package rce

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

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
	// passes over the groups; 0 skips the phase
	Epochs int `koanf:"epochs" range:"[0,inf)" also:"num_train_epochs,num_epochs,max_epochs,epoch"`
	// queries of an epoch, drawn anew each time (the first ones without data.shuffle); null = all
	EpochQueries *int `koanf:"epoch_queries" range:"[1,inf)"`
	// peak learning rate
	LR float64 `koanf:"lr" range:"(0,inf)" also:"learning_rate"`
	// queries a step; null = data.batch_size
	BatchSize *int `koanf:"batch_size" range:"[1,inf)"`
	// queries in one forward and backward pass, to bound memory; the gradients of a step's passes add up to
	// those of the same loss; null = all at once
	MicroBatch *int `koanf:"micro_batch" range:"[1,inf)"`
	// offline: recorded candidates; online: candidates sampled from the policy as it is and scored by the
	// reader
	Rollout string `koanf:"rollout" enum:"offline,online"`
	// sampled candidates per query (online)
	GroupSize int `koanf:"group_size" range:"[2,10000]"`
	// temperature of sampling (online)
	SampleTemp float64 `koanf:"sample_temperature" range:"(0,inf)" also:"sampling_temperature,rollout_temperature"`
	// τ of the softmax over a query's candidates, annealed by step
	Temperature schedule.TemperatureOptions `koanf:"temperature"`
	// what the weights are a softmax of: the rewards as they are, or those of data.normalize
	Rewards string `koanf:"rewards" enum:"raw,normalized"`
	// imitate the best candidate only (the weights are then one-hot)
	Top1Only bool `koanf:"top1_only"`
	// sequence: the loss is a mean over queries of summed cross entropies; token: a mean over scored steps,
	// each weighted as its candidate
	Average string `koanf:"average" enum:"sequence,token"`
	// sampled completions kept in completions.jsonl (online, token policies)
	Completions phases.CompletionOptions `koanf:"completions"`

	// Set by the program, not by users.
	Compat       bool `koanf:"-"` // top1_only takes the first listed beam and the mean over its steps; infinite rewards give NaN
	KeepGradient bool `koanf:"-"` // leave the last step's clipped gradient in Env.LastGradient
}

// DefaultOptions returns the plan's warm-up: τ 2.0 → 0.5, linear.
func DefaultOptions() Options {
	return Options{Epochs: 5, LR: 1e-4, Rollout: "offline", GroupSize: 8, SampleTemp: 1, Rewards: "normalized",
		Temperature: schedule.DefaultTemperatureOptions(), Average: "sequence", Completions: phases.DefaultCompletionOptions()}
}

// SFTOptions configures supervised fine-tuning on the best recorded beam (config section sft).
type SFTOptions struct {
	// passes over the best beam of each query; 0 skips the phase
	Epochs int `koanf:"epochs" range:"[0,inf)" also:"num_train_epochs,num_epochs,max_epochs,epoch"`
	// queries of an epoch, drawn anew each time (the first ones without data.shuffle); null = all
	EpochQueries *int `koanf:"epoch_queries" range:"[1,inf)"`
	// peak learning rate
	LR float64 `koanf:"lr" range:"(0,inf)" also:"learning_rate"`
	// queries a step; null = data.batch_size
	BatchSize *int `koanf:"batch_size" range:"[1,inf)"`
	// queries in one forward and backward pass, to bound memory; changes no gradient; null = all at once
	MicroBatch *int `koanf:"micro_batch" range:"[1,inf)"`
	// sequence: the loss is a mean over queries of summed cross entropies; token: a mean over all scored steps
	// of the batch
	Average string `koanf:"average" enum:"sequence,token"`
}

// DefaultSFTOptions skips the phase.
func DefaultSFTOptions() SFTOptions { return SFTOptions{Epochs: 0, LR: 1e-4, Average: "sequence"} }

// Phase is reward-weighted cross entropy: -Σ_i w_i log π(beam_i), w = softmax(reward / τ) within a query
// (reward-weighted regression, Peters & Schaal 2007; parity spec §5). SFT is its one-hot case. Online, the
// candidates are samples of the policy as it is: every step then moves it towards its better ones.
type Phase struct {
	name      string
	sft       bool // has no τ
	opt       Options
	sched     schedule.LROptions
	optim     phases.OptimOptions
	src       selector.Source
	batch     int
	smoothing float64

	env      *phases.Env
	learn    *phases.Learner
	text     bool // the policy's steps are tokens
	showNext bool // no batch of this epoch has been kept for reading yet
	total    int
	gradient []float32 // restored, until the next step makes its own (KeepGradient)
}

// New returns the rce phase on recorded beams.
func New(opt Options, optim phases.OptimOptions, sched schedule.LROptions, src selector.Source, batch int, smoothing float64) *Phase {
	if opt.BatchSize != nil {
		batch = *opt.BatchSize
	}
	return &Phase{name: "rce", opt: opt, optim: optim, sched: sched, src: src, batch: batch, smoothing: smoothing}
}

// NewSFT returns the sft phase: cross entropy on the best recorded beam of each query.
func NewSFT(opt SFTOptions, optim phases.OptimOptions, sched schedule.LROptions, src selector.Source, batch int, smoothing float64) *Phase {
	rce := DefaultOptions()
	rce.Epochs, rce.EpochQueries, rce.LR, rce.BatchSize, rce.Top1Only = opt.Epochs, opt.EpochQueries, opt.LR, opt.BatchSize, true
	rce.MicroBatch, rce.Average = opt.MicroBatch, opt.Average
	p := New(rce, optim, sched, src, batch, smoothing)
	p.name, p.sft = "sft", true
	return p
}

// Named gives the phase the name that it has in the schedule, where that is not rce or sft.
func (r *Phase) Named(name string) *Phase {
	r.name = name
	return r
}

// Name, Epochs, Source, BatchSize and Passes describe the phase to the scheduler.
func (r *Phase) Name() string            { return r.name }
func (r *Phase) Epochs() int             { return r.opt.Epochs }
func (r *Phase) Source() selector.Source { return r.src }
func (r *Phase) BatchSize() int          { return r.batch }
func (r *Phase) Passes() int             { return 1 }

// Limits is what the options promise about the phase's rows.
func (r *Phase) Limits() doctor.Limits {
	lim := phases.LearnLimits(r.opt.LR, r.sched, r.optim)
	lim.Online = r.opt.Rollout == "online"
	if t := r.opt.Temperature; !r.sft {
		lim.Tau = &doctor.Tau{Start: t.Start, End: t.End, Schedule: t.Schedule}
	}
	return lim
}

// EpochQueries is how many queries an epoch takes.
func (r *Phase) EpochQueries() int { return phases.AtMost(r.opt.EpochQueries) }

// Check asks whether the options suit the policy.
func (r *Phase) Check(env *phases.Env) error {
	if _, text := env.Policy.(selector.TokenPolicy); text && r.smoothing > 0 {
		return fmt.Errorf("label smoothing %g: want 0 with a token policy, whose distributions are never whole", r.smoothing)
	}
	_, err := r.optim.OwnRates(env.Policy.Params(), r.opt.LR)
	return err
}

// Begin makes the phase's optimizer.
func (r *Phase) Begin(env *phases.Env, totalSteps int) error {
	if err := r.Check(env); err != nil {
		return err
	}
	r.env, r.total = env, totalSteps
	_, r.text = env.Policy.(selector.TokenPolicy)
	var err error
	if r.learn, err = phases.NewLearner(env.Policy.Params(), r.optim, r.opt.LR, r.sched, totalSteps); err != nil {
		return err
	}
	r.learn.Optimizer.KeepGrad = r.opt.KeepGradient
	return nil
}

// BeginEpoch asks for the first batch of samples to be kept for reading; there is nothing to refresh.
func (r *Phase) BeginEpoch(int) error {
	r.showNext = true
	return nil
}

// Step makes one update of weighted imitation.
func (r *Phase) Step(_ context.Context, epoch, step, _ int, queries []int) (phases.Metrics, error) {
	batch, err := r.collect(epoch, step, queries) // [B, G, T]
	if err != nil {
		return nil, err
	}
	tau := r.opt.Temperature.At(step, r.total)                             // annealed by step
	weights, stats := beamWeights(r.opt, batch, tau, r.env.Data.Normalize) // [B*G], 1 over each query
	if r.text && r.opt.Top1Only {
		batch, weights = imitated(batch, weights) // tokens that weigh nothing cost as much as others
	}
	divisor := float64(max(stats.Groups, 1))
	if r.opt.Average == "token" {
		divisor = weightedSteps(weights, batch)
	}
	loss := 0.0
	r.learn.Zero()
	for from, to := range objective.Spans(batch.B(), r.opt.MicroBatch) {
		loss += r.accumulate(batch.Part(from, to), weights[from*batch.G:to*batch.G], divisor, step)
	}
	m, err := r.learn.Step(loss, step)
	if err != nil {
		return nil, err
	}
	r.gradient = nil
	m["items"] = batch.NumValid()
	if !r.sft {
		m["temperature"] = tau
	}
	if !r.opt.Top1Only {
		m["effective_sample_size"] = stats.ESS
		if stats.Several > 0 {
			m["signal_share"] = objective.Share(stats.Signal, stats.Several)
		}
		if stats.Signal > 0 {
			m["ess_share"], m["score_spread"] = stats.SignalShare, stats.Spread
		}
	}
	if r.text {
		m["tokens"] = objective.CountSteps(batch)
		phases.AddTextMetrics(m, batch)
	}
	if r.opt.Rollout == "online" {
		m["mean_reward"], m["reward_std"] = objective.MeanReward(batch), advantage.GroupStd(batch.Rewards, batch.Valid, batch.B(), batch.G)
	}
	return m, nil
}

// collect returns the recorded candidates of queries, or samples of the policy with their rewards.
func (r *Phase) collect(epoch, step int, queries []int) (*selector.Batch, error) {
	if r.opt.Rollout != "online" {
		b := r.src.Recorded(queries)
		return b, phases.CheckRewards(b, r.optim.GoOn)
	}
	b, err := phases.SampleGroups(r.env.Policy, r.src, queries, r.opt.GroupSize, r.env.Data.Shots, r.opt.SampleTemp, rng.Key(r.env.Seed, "rollout "+r.name, step))
	if err == nil {
		err = phases.CheckRewards(b, r.optim.GoOn)
	}
	if err != nil {
		return nil, err
	}
	show := r.opt.Completions.Due(r.showNext, step, 1)
	r.showNext = false
	if !show || !r.text {
		return b, nil
	}
	return b, r.opt.Completions.Record(r.env.Rec, r.name, epoch, step, b, r.env.Data.Advantage)
}

// accumulate adds the gradient of a part of the batch and returns its share of the loss. Dropout masks belong to queries
// and candidates: they are those of the whole batch.
func (r *Phase) accumulate(part *selector.Batch, weights []float64, divisor float64, step int) float64 {
	if part.NumValid() == 0 {
		return 0
	}
	defer torchx.Scope()()
	key := rng.Key(r.env.Seed, "dropout "+r.name, step)
	out := r.env.Policy.Forward(part, selector.ForwardOptions{Train: true, DropoutSeed: key, Dist: r.smoothing > 0})
	ce := objective.CrossEntropy(out, part, r.smoothing)                                       // [B, G]
	loss := objective.Weighted(ce, objective.OnDevice(ce, weights, part.B(), part.G), divisor) // scalar
	torchx.Backward(loss)
	return loss.Item() // sync
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

// beamWeights are the weights [B*G] of a batch's recorded candidates under temperature tau.
func beamWeights(opt Options, b *selector.Batch, tau float64, normalize func([]float64) []float64) ([]float64, group.WeightStats) {
	rewards := b.Rewards
	switch {
	case opt.Top1Only && opt.Compat:
		return firstWeights(b)
	case opt.Top1Only:
		return top1Weights(b)
	}
	if opt.Rewards == "normalized" && normalize != nil {
		rewards = objective.NormalizeGroups(b, normalize)
	}
	w, stats := group.Weights(rewards, b.Valid, b.B(), b.G, tau, opt.Temperature.Relative)
	if opt.Compat {
		infiniteIsNaN(w, rewards, b.G)
	}
	return w, stats
}

// infiniteIsNaN makes the weights of groups with an infinite reward NaN, as torch.softmax does.
func infiniteIsNaN(w, rewards []float64, g int) {
	for i, r := range rewards {
		if math.IsInf(r, 1) {
			for at := i / g * g; at < (i/g+1)*g; at++ {
				w[at] = math.NaN()
			}
		}
	}
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

// firstWeights puts 1/T on the first listed candidate of each query, as the reference does (defect D14):
// the loss is then a mean over steps.
func firstWeights(b *selector.Batch) ([]float64, group.WeightStats) {
	w := make([]float64, len(b.Valid))
	stats := group.WeightStats{ESS: 1}
	for i := range b.B() {
		if b.Valid[i*b.G] {
			w[i*b.G] = 1 / float64(b.T)
			stats.Groups++
		}
	}
	return w, stats
}

// EndEpoch has nothing to adapt.
func (r *Phase) EndEpoch(int, phases.Metrics) (phases.Metrics, error) { return nil, nil }

// Reference is the policy that the run started from.
func (r *Phase) Reference() selector.Policy { return r.env.Initial }

// State returns the optimizer's state, and the last gradient where the next phase wants it.
func (r *Phase) State() phases.PhaseState {
	m, v, steps := r.learn.Optimizer.State()
	s := phases.PhaseState{Values: json.RawMessage("{}"), M: m, V: v, OptimizerSteps: steps}
	if g := r.clippedGradient(); g != nil {
		s.Frozen = map[string][]float32{phases.LastGradient: g}
	}
	return s
}

// clippedGradient is the gradient of the last step after clipping; nil unless it is kept.
func (r *Phase) clippedGradient() []float32 {
	if !r.opt.KeepGradient || r.gradient != nil || r.learn.Optimizer.Steps() == 0 {
		return r.gradient
	}
	g := torchx.Data[float32](r.learn.Params.Grad())
	scale := float32(r.learn.Scale)
	for i := range g {
		g[i] *= scale
	}
	return g
}

// Restore sets the optimizer's state.
func (r *Phase) Restore(s phases.PhaseState) error {
	if err := r.learn.Optimizer.SetState(s.M, s.V, s.OptimizerSteps); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	if r.opt.KeepGradient && s.OptimizerSteps > 0 {
		g, ok := s.Frozen[phases.LastGradient]
		if !ok {
			return fmt.Errorf("%s: the saved state lacks the last gradient", r.name)
		}
		r.gradient = g
	}
	return nil
}

// End frees the optimizer.
func (r *Phase) End() {
	if r.opt.KeepGradient {
		r.env.LastGradient = r.clippedGradient()
	}
	r.learn.Free()
}
