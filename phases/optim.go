package phases

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/rewardutil/schedule"
)

// OptimOptions configures the optimizer of every phase (config section optim).
type OptimOptions struct {
	// optimizer
	Name string `koanf:"name" enum:"adamw" also:"optimizer,optim,adamw_torch=adamw,adam=adamw"`
	// how moments are kept: bfloat16 = in half the memory, rounded at random; offload = in the host's memory
	State string `koanf:"state" enum:"float32,bfloat16,offload"`
	// decoupled weight decay (Loshchilov & Hutter 2019)
	WeightDecay float64 `koanf:"weight_decay" range:"[0,inf)" also:"wd"`
	// decay rates of the first and second moment
	Betas []float64 `koanf:"betas"`
	// added to the root of the second moment
	Eps float64 `koanf:"eps" range:"(0,inf)" also:"adam_epsilon"`
	// largest global L2 norm of a step's gradient; 0 = no clipping
	GradClipNorm float64 `koanf:"grad_clip_norm" range:"[0,inf)" also:"max_grad_norm,gradient_clip_val,grad_clip,clip_grad_norm,max_norm"`

	// learning rate of the merger between vision tower and decoder, on the phase's schedule; null = the phase's lr
	ProjectorLR *float64 `koanf:"mm_projector_lr" range:"(0,inf)"`
	// the same of the vision tower
	TowerLR *float64 `koanf:"vision_tower_lr" range:"(0,inf)"`
}

// DefaultOptimOptions returns PyTorch's AdamW with gradients clipped to norm 1.
func DefaultOptimOptions() OptimOptions {
	return OptimOptions{Name: "adamw", State: torchx.KeepFloat32, WeightDecay: 0.01, Betas: []float64{0.9, 0.999}, Eps: 1e-8, GradClipNorm: 1}
}

func (o OptimOptions) Validate() error {
	if len(o.Betas) != 2 || !(o.Betas[0] >= 0 && o.Betas[0] < 1) || !(o.Betas[1] >= 0 && o.Betas[1] < 1) {
		return option.Errorf("betas", "want two numbers in [0, 1), got %v", o.Betas)
	}
	return nil
}

// lrGroup is a part of the parameters with its own learning rate.
type lrGroup struct {
	key    string
	of     func(name string) bool
	lr     *float64 // nil: the phase's
	metric func(m *OptimizerMetrics) **float64
}

// lrGroups names the groups of Qwen's fine-tuning recipe by the published names of their parameters.
func (o OptimOptions) lrGroups() []lrGroup {
	merger := func(name string) bool { return strings.Contains(name, "visual.merger.") }
	tower := func(name string) bool { return strings.Contains(name, "visual.") && !merger(name) }
	return []lrGroup{
		{"mm_projector_lr", merger, o.ProjectorLR, func(m *OptimizerMetrics) **float64 { return &m.ProjectorLR }},
		{"vision_tower_lr", tower, o.TowerLR, func(m *OptimizerMetrics) **float64 { return &m.TowerLR }},
	}
}

// ownRates returns the groups whose learning rate differs from the phase's, lr. Each must have parameters.
func (o OptimOptions) ownRates(p *torchx.Params, lr float64) ([]lrGroup, error) {
	var out []lrGroup
	for _, g := range o.lrGroups() {
		switch {
		case g.lr == nil:
			continue
		case !slices.ContainsFunc(p.Names(), g.of):
			return nil, fmt.Errorf("optim.%s=%v: that part is frozen: vl.tune_mm_mlp, vl.tune_mm_vision or adapters on it train it",
				g.key, *g.lr)
		case lr == 0:
			return nil, fmt.Errorf("optim.%s=%v: want a phase whose own learning rate is above 0", g.key, *g.lr)
		}
		out = append(out, g)
	}
	return out, nil
}

// Check makes NewLearner's checks of the parameters.
func (o OptimOptions) Check(p *torchx.Params, lr float64, freeze []string) error {
	if _, err := o.ownRates(p, lr); err != nil {
		return err
	}
	_, err := frozenNames(p, freeze)
	return err
}

// Expected returns what the doctor expects of a learner's rows.
func (o OptimOptions) Expected(t Training, sched schedule.LROptions) doctor.Limits {
	return doctor.Limits{Epochs: t.Epochs, LR: t.LR, LRPlan: doctor.Plan(sched), ClipNorm: o.GradClipNorm, Beta1: o.Betas[0]}
}

// FrozenPart is a range [Start, End) of the flat buffers that a phase does not change. Its gradient is 0 in every step
// unless a GradientHook sets it.
type FrozenPart struct {
	Start, End int
	Grad       torchx.Tensor // [End-Start] view of the gradient buffer
}

// frozenNames finds the parameters whose name contains one of parts; each must name at least one.
func frozenNames(p *torchx.Params, parts []string) (map[string]bool, error) {
	names := map[string]bool{}
	for _, part := range parts {
		found := false
		for _, name := range p.Names() {
			if part != "" && strings.Contains(name, part) { // an empty text would freeze all
				names[name], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("freeze: no parameter has %q in its name; the parameters are %s", part, strings.Join(p.Names(), ", "))
		}
	}
	return names, nil
}

// frozenParts returns the stretches of the named parameters, neighbours as one.
func frozenParts(p *torchx.Params, names map[string]bool) []FrozenPart {
	var parts []FrozenPart
	for _, name := range list.Filter(p.Names(), func(name string) bool { return names[name] }) { // in their order
		start, end := p.Range(name)
		if n := len(parts); n > 0 && parts[n-1].End == start {
			parts[n-1].End = end
		} else {
			parts = append(parts, FrozenPart{Start: start, End: end})
		}
	}
	defer torchx.Scope()()
	for i, part := range parts {
		parts[i].Grad = torchx.Own(torchx.Narrow(p.Grad(), 0, part.Start, part.End-part.Start))
	}
	return parts
}
