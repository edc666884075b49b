package phases

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil"
	"fulcrum/selector"
)

// RCEOptions configures reward-weighted cross entropy (config section rce).
type RCEOptions struct {
	Epochs      int                           `koanf:"epochs" help:"passes over the recorded beams; 0 skips the phase" range:"[0,inf)"`
	LR          float64                       `koanf:"lr" help:"peak learning rate" range:"(0,inf)"`
	BatchSize   *int                          `koanf:"batch_size" help:"queries a step; null = data.batch_size" range:"[1,inf)"`
	Temperature rewardutil.TemperatureOptions `koanf:"temperature" help:"τ of the softmax over a query's beams, annealed by step"`
	Rewards     string                        `koanf:"rewards" help:"what the weights are a softmax of: the recorded rewards, or those of data.normalize" enum:"raw,normalized"`
	Top1Only    bool                          `koanf:"top1_only" help:"imitate the best beam only (the weights are then one-hot)"`

	// Set by the program, not by users.
	Compat       bool `koanf:"-"` // top1_only takes the first listed beam and the mean over its steps; infinite rewards give NaN
	KeepGradient bool `koanf:"-"` // leave the last step's clipped gradient in Env.LastGradient
}

// DefaultRCEOptions returns the plan's warm-up: τ 2.0 → 0.5, linear.
func DefaultRCEOptions() RCEOptions {
	return RCEOptions{Epochs: 5, LR: 1e-4, Rewards: "normalized",
		Temperature: rewardutil.DefaultTemperatureOptions()}
}

// SFTOptions configures supervised fine-tuning on the best recorded beam (config section sft).
type SFTOptions struct {
	Epochs    int     `koanf:"epochs" help:"passes over the best beam of each query; 0 skips the phase" range:"[0,inf)"`
	LR        float64 `koanf:"lr" help:"peak learning rate" range:"(0,inf)"`
	BatchSize *int    `koanf:"batch_size" help:"queries a step; null = data.batch_size" range:"[1,inf)"`
}

// DefaultSFTOptions skips the phase.
func DefaultSFTOptions() SFTOptions { return SFTOptions{Epochs: 0, LR: 1e-4} }

// RCE is reward-weighted cross entropy: -Σ_i w_i log π(beam_i), w = softmax(reward / τ) within a query
// (reward-weighted regression, Peters & Schaal 2007; parity spec §5). SFT is its one-hot case.
type RCE struct {
	name      string
	opt       RCEOptions
	sched     rewardutil.LRScheduleOptions
	optim     OptimOptions
	src       selector.Source
	batch     int
	smoothing float64

	env      *Env
	learn    *learner
	total    int
	gradient []float32 // restored, until the next step makes its own (KeepGradient)
}

// NewRCE returns the rce phase on recorded beams.
func NewRCE(opt RCEOptions, optim OptimOptions, sched rewardutil.LRScheduleOptions, src selector.Source, batch int, smoothing float64) *RCE {
	if opt.BatchSize != nil {
		batch = *opt.BatchSize
	}
	return &RCE{name: "rce", opt: opt, optim: optim, sched: sched, src: src, batch: batch, smoothing: smoothing}
}

// NewSFT returns the sft phase: cross entropy on the best recorded beam of each query.
func NewSFT(opt SFTOptions, optim OptimOptions, sched rewardutil.LRScheduleOptions, src selector.Source, batch int, smoothing float64) *RCE {
	rce := DefaultRCEOptions()
	rce.Epochs, rce.LR, rce.BatchSize, rce.Top1Only = opt.Epochs, opt.LR, opt.BatchSize, true
	p := NewRCE(rce, optim, sched, src, batch, smoothing)
	p.name = "sft"
	return p
}

// Name, Epochs, Source, BatchSize and Passes describe the phase to the scheduler.
func (r *RCE) Name() string            { return r.name }
func (r *RCE) Epochs() int             { return r.opt.Epochs }
func (r *RCE) Source() selector.Source { return r.src }
func (r *RCE) BatchSize() int          { return r.batch }
func (r *RCE) Passes() int             { return 1 }

// Begin makes the phase's optimizer.
func (r *RCE) Begin(env *Env, totalSteps int) error {
	r.env, r.total = env, totalSteps
	r.learn = newLearner(env.Policy.Params(), r.optim, r.opt.LR, r.sched, totalSteps)
	r.learn.optim.KeepGrad = r.opt.KeepGradient
	return nil
}

// BeginEpoch has nothing to refresh.
func (r *RCE) BeginEpoch(int) error { return nil }

// Step makes one update of weighted imitation.
func (r *RCE) Step(_ context.Context, epoch, step, _ int, queries []int) (Metrics, error) {
	batch := r.src.Recorded(queries)                                       // [B, G, S]
	tau := r.opt.Temperature.At(step, r.total)                             // annealed by step
	weights, stats := beamWeights(r.opt, batch, tau, r.env.Data.Normalize) // [B, G], 1 over each query
	out := r.env.Policy.Forward(batch, selector.ForwardOptions{Train: true, DropoutSeed: rng.Key(r.env.Seed, "dropout "+r.name, step), Dist: r.smoothing > 0})
	ce := crossEntropy(out, batch, r.smoothing)                                   // [B, G]
	loss := weighted(ce, onDevice(ce, weights, batch.B(), batch.G), stats.Groups) // scalar
	m, err := r.learn.update(loss, step)
	if err != nil {
		return nil, err
	}
	r.gradient = nil
	m["items"] = batch.NumValid()
	if r.name == "rce" {
		m["temperature"] = tau
	}
	if !r.opt.Top1Only {
		m["effective_sample_size"] = stats.ESS
	}
	return m, nil
}

// beamWeights are the weights [B*G] of a batch's recorded candidates under temperature tau.
func beamWeights(opt RCEOptions, b *selector.Batch, tau float64, normalize func([]float64) []float64) ([]float64, rewardutil.WeightStats) {
	rewards := b.Rewards
	switch {
	case opt.Top1Only && opt.Compat:
		return firstWeights(b)
	case opt.Top1Only:
		return top1Weights(b)
	}
	if opt.Rewards == "normalized" && normalize != nil {
		rewards = normalizeGroups(b, normalize)
	}
	w, stats := rewardutil.Weights(rewards, b.Valid, b.B(), b.G, tau, opt.Temperature.Relative)
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
func top1Weights(b *selector.Batch) ([]float64, rewardutil.WeightStats) {
	sel := rewardutil.TopK(b.Rewards, b.Valid, b.B(), b.G, 1)
	w := make([]float64, len(b.Valid))
	stats := rewardutil.WeightStats{ESS: 1}
	for i := range b.B() {
		if sel.Valid[i] {
			w[i*b.G+sel.Index[i]] = 1
			stats.Groups++
		}
	}
	return w, stats
}

// firstWeights puts 1/T on the first listed candidate of each query, as the reference does (defect D14):
// the loss is then a mean over steps.
func firstWeights(b *selector.Batch) ([]float64, rewardutil.WeightStats) {
	w := make([]float64, len(b.Valid))
	stats := rewardutil.WeightStats{ESS: 1}
	for i := range b.B() {
		if b.Valid[i*b.G] {
			w[i*b.G] = 1 / float64(b.T)
			stats.Groups++
		}
	}
	return w, stats
}

// EndEpoch has nothing to adapt.
func (r *RCE) EndEpoch(int, Metrics) (Metrics, error) { return nil, nil }

// Reference is the policy that the run started from.
func (r *RCE) Reference() selector.Policy { return r.env.Initial }

// lastGradient is the name of a clipped gradient in a saved state.
const lastGradient = "last_gradient"

// State returns the optimizer's state, and the last gradient where the next phase wants it.
func (r *RCE) State() PhaseState {
	m, v, steps := r.learn.optim.State()
	s := PhaseState{Values: json.RawMessage("{}"), M: m, V: v, OptimizerSteps: steps}
	if g := r.clippedGradient(); g != nil {
		s.Frozen = map[string][]float32{lastGradient: g}
	}
	return s
}

// clippedGradient is the gradient of the last step after clipping; nil unless it is kept.
func (r *RCE) clippedGradient() []float32 {
	if !r.opt.KeepGradient || r.gradient != nil || r.learn.optim.Steps() == 0 {
		return r.gradient
	}
	g := torchx.Data[float32](r.learn.params.Grad())
	scale := float32(r.learn.scale)
	for i := range g {
		g[i] *= scale
	}
	return g
}

// Restore sets the optimizer's state.
func (r *RCE) Restore(s PhaseState) error {
	if err := r.learn.optim.SetState(s.M, s.V, s.OptimizerSteps); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	if r.opt.KeepGradient && s.OptimizerSteps > 0 {
		g, ok := s.Frozen[lastGradient]
		if !ok {
			return fmt.Errorf("%s: the saved state lacks the last gradient", r.name)
		}
		r.gradient = g
	}
	return nil
}

// End frees the optimizer.
func (r *RCE) End() {
	if r.opt.KeepGradient {
		r.env.LastGradient = r.clippedGradient()
	}
	r.learn.free()
}
