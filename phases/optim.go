package phases

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/rewardutil/schedule"
)

// OptimOptions configures the optimizer of every phase (config section optim).
type OptimOptions struct {
	// optimizer
	Name string `koanf:"name" enum:"adamw" also:"optimizer,optim,adamw_torch=adamw,adam=adamw"`
	// decoupled weight decay (Loshchilov & Hutter 2019)
	WeightDecay float64 `koanf:"weight_decay" range:"[0,inf)" also:"wd"`
	// decay rates of the first and second moment
	Betas []float64 `koanf:"betas"`
	// added to the root of the second moment
	Eps float64 `koanf:"eps" range:"(0,inf)" also:"adam_epsilon"`
	// largest global L2 norm of a step's gradient; 0 = no clipping
	GradClipNorm float64 `koanf:"grad_clip_norm" range:"[0,inf)" also:"max_grad_norm,gradient_clip_val,grad_clip,clip_grad_norm,max_norm"`

	// learning rate of the merger between vision tower and decoder, in every phase; it follows the phase's
	// schedule (null = the phase's lr)
	ProjectorLR *float64 `koanf:"mm_projector_lr" range:"(0,inf)"`
	// the same of the vision tower
	TowerLR *float64 `koanf:"vision_tower_lr" range:"(0,inf)"`

	// Set by the program, not by users.
	GoOn bool `koanf:"-"` // compat: step on after a NaN or infinite loss or gradient
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

// Learner is a phase's optimizer and learning-rate schedule.
type Learner struct {
	Params    *torchx.Params
	Optimizer *torchx.AdamW
	clip      float64
	lr        float64
	sched     schedule.LROptions
	total     int // optimizer steps of the whole phase
	groups    []lrGroup
	Frozen    *stillParams
	goOn      bool    // go on after NaN and infinity
	Scale     float64 // the clipping factor of the last step
}

// lrGroup is a part of the parameters with a learning rate of its own.
type lrGroup struct {
	key, metric string
	of          func(name string) bool
	lr          *float64 // nil: the phase's
}

// lrGroups names the groups of Qwen's fine-tuning recipe by the published names of their parameters.
func (o OptimOptions) lrGroups() []lrGroup {
	merger := func(name string) bool { return strings.Contains(name, "visual.merger.") }
	tower := func(name string) bool { return strings.Contains(name, "visual.") && !merger(name) }
	return []lrGroup{
		{"mm_projector_lr", "lr_mm_projector", merger, o.ProjectorLR},
		{"vision_tower_lr", "lr_vision_tower", tower, o.TowerLR},
	}
}

// OwnRates returns the groups whose learning rate is not the phase's, lr. Each must have parameters.
func (o OptimOptions) OwnRates(p *torchx.Params, lr float64) ([]lrGroup, error) {
	var out []lrGroup
	for _, g := range o.lrGroups() {
		switch {
		case g.lr == nil:
			continue
		case !slices.ContainsFunc(p.Names(), g.of):
			return nil, fmt.Errorf("optim.%s=%v: nothing of that part is trained: vl.tune_mm_mlp and vl.tune_mm_vision, or adapters on it, train it",
				g.key, *g.lr)
		case lr == 0:
			return nil, fmt.Errorf("optim.%s=%v: want a phase whose own learning rate is above 0", g.key, *g.lr)
		}
		out = append(out, g)
	}
	return out, nil
}

func NewLearner(p *torchx.Params, opt OptimOptions, lr float64, sched schedule.LROptions, total int) (*Learner, error) {
	groups, err := opt.OwnRates(p, lr)
	if err != nil {
		return nil, err
	}
	l := &Learner{Params: p, Optimizer: torchx.NewAdamW(p, opt.Betas[0], opt.Betas[1], opt.Eps, opt.WeightDecay),
		clip: opt.GradClipNorm, lr: lr, sched: sched, total: total, groups: groups, goOn: opt.GoOn}
	if len(groups) > 0 {
		l.Optimizer.ScaleLR(l.lrScale)
	}
	return l, nil
}

// lrScale returns the factor between a parameter's learning rate and the phase's.
func (l *Learner) lrScale(name string) float64 {
	if l.Frozen != nil && l.Frozen.names[name] {
		return 0
	}
	for _, g := range l.groups {
		if g.of(name) {
			return *g.lr / l.lr
		}
	}
	return 1
}

// LearnLimits is what a learner promises about its rows.
func LearnLimits(lr float64, sched schedule.LROptions, optim OptimOptions) doctor.Limits {
	return doctor.Limits{LR: lr, LRPlan: doctor.Plan{Name: sched.Name, Warmup: sched.WarmupRatio, Floor: sched.MinRatio},
		ClipNorm: optim.GradClipNorm, Beta1: optim.Betas[0]}
}

// Freeze keeps the parameters whose name contains one of parts as they are. Every part must name some, or,
// where any is enough, one of them.
func (l *Learner) Freeze(parts []string, any bool) error {
	if len(parts) == 0 {
		return nil
	}
	still, err := newStillParams(l.Params, parts, any)
	if err != nil {
		return err
	}
	l.Frozen = still
	l.Optimizer.ScaleLR(l.lrScale)
	return nil
}

// Zero clears the gradient before the backward passes of a step.
func (l *Learner) Zero() { l.Params.ZeroGrad() }

// Step makes the optimizer step number step (0-based) down the gradient that the backward passes of a loss
// have added up. Nothing changes when the loss or the gradient is not finite: that is a *NonFiniteError,
// unless compat goes on. A step that is traced changes nothing either.
func (l *Learner) Step(loss float64, step int) (Metrics, error) {
	l.Frozen.replace()
	norm := l.Params.GradNorm() // before clipping; sync
	switch {
	case torchx.Tracing():
		return nil, errTraced
	case notFinite(loss) && !l.goOn:
		return nil, &NonFiniteError{What: fmt.Sprintf("the loss is %v", loss), Hint: "lower the learning rate or look at the rewards"}
	case notFinite(norm) && !l.goOn:
		return nil, &NonFiniteError{What: fmt.Sprintf("the gradient norm is %v at loss %g", norm, loss), Hint: "lower the learning rate"}
	}
	l.Scale = 1.0
	if l.clip > 0 {
		l.Scale = math.Min(1, l.clip/(norm+1e-6)) // NaN stays NaN
	}
	lr := l.lr * l.sched.At(step, l.total)
	l.Optimizer.Step(lr, l.Scale)
	m := Metrics{"loss": loss, "grad_norm": norm, "lr": lr, "moment_norm": l.Optimizer.MomentNorm(), "optimizer_steps": l.Optimizer.Steps()}
	if l.clip > 0 {
		m["clip_factor"] = l.Scale
	}
	for _, g := range l.groups {
		m[g.metric] = lr / l.lr * *g.lr
	}
	if stale, ok := l.Frozen.clip(l.Scale); ok {
		m["frozen_grad_norm"] = stale
	}
	return m, nil
}

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

func (l *Learner) Free() {
	l.Optimizer.Free()
	l.Frozen.Free()
}
