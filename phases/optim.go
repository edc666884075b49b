package phases

import (
	"fmt"
	"math"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil"
)

// OptimOptions configures the optimizer of every phase (config section optim).
type OptimOptions struct {
	Name         string    `koanf:"name" help:"optimizer" enum:"adamw"`
	WeightDecay  float64   `koanf:"weight_decay" help:"decoupled weight decay (Loshchilov & Hutter 2019)" range:"[0,inf)"`
	Betas        []float64 `koanf:"betas" help:"decay rates of the first and second moment"`
	Eps          float64   `koanf:"eps" help:"added to the root of the second moment" range:"(0,inf)"`
	GradClipNorm float64   `koanf:"grad_clip_norm" help:"largest global L2 norm of a step's gradient; 0 = no clipping" range:"[0,inf)"`
}

// DefaultOptimOptions returns PyTorch's AdamW with gradients clipped to norm 1.
func DefaultOptimOptions() OptimOptions {
	return OptimOptions{Name: "adamw", WeightDecay: 0.01, Betas: []float64{0.9, 0.999}, Eps: 1e-8, GradClipNorm: 1}
}

// Validate checks the pair of decay rates.
func (o OptimOptions) Validate() error {
	if len(o.Betas) != 2 || !(o.Betas[0] >= 0 && o.Betas[0] < 1) || !(o.Betas[1] >= 0 && o.Betas[1] < 1) {
		return option.Errorf("betas", "want two numbers in [0, 1), got %v", o.Betas)
	}
	return nil
}

// learner is a phase's optimizer and learning-rate schedule.
type learner struct {
	params *torchx.Params
	optim  *torchx.AdamW
	clip   float64
	lr     float64
	sched  rewardutil.LRScheduleOptions
	total  int // optimizer steps of the whole phase
}

func newLearner(p *torchx.Params, opt OptimOptions, lr float64, sched rewardutil.LRScheduleOptions, total int) *learner {
	return &learner{p, torchx.NewAdamW(p, opt.Betas[0], opt.Betas[1], opt.Eps, opt.WeightDecay), opt.GradClipNorm, lr, sched, total}
}

// update makes one optimizer step down the gradient of loss at step (0-based). Nothing changes when the
// loss or the gradient is not finite: that is an error.
func (l *learner) update(loss torchx.Tensor, step int) (Metrics, error) {
	value := loss.Item() // sync
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil, fmt.Errorf("the loss is %v: the weights were left as they were; lower the learning rate or look at the rewards", value)
	}
	l.params.ZeroGrad()
	torchx.Backward(loss)
	norm := l.params.GradNorm() // before clipping; sync
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return nil, fmt.Errorf("the gradient norm is %v at loss %g: the weights were left as they were; lower the learning rate", norm, value)
	}
	scale := 1.0
	if l.clip > 0 {
		scale = math.Min(1, l.clip/(norm+1e-6))
	}
	lr := l.lr * l.sched.At(step, l.total)
	l.optim.Step(lr, scale)
	return Metrics{"loss": value, "grad_norm": norm, "lr": lr}, nil
}

func (l *learner) free() { l.optim.Free() }
