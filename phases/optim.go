package phases

import (
	"encoding/json"
	"fmt"
	"maps"
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
	Frozen    []FrozenPart // what the phase leaves as it is
	Scale     float64      // the clipping factor of the last step

	phase  string
	env    *Env
	clip   float64
	lr     float64
	sched  schedule.LROptions
	total  int // optimizer steps of the whole phase
	groups []lrGroup

	recordings map[string]*recording // of steps by what tells them apart (record.go)
	remarked   bool                  // the run was told why steps are not recorded
}

// GradientHook sees the gradients of a run's optimizer steps and may change them.
type GradientHook interface {
	// Begin is called when a phase has made its optimizer.
	Begin(phase string, l *Learner)
	// Backward is called after the backward passes of a step, before the norm is taken.
	Backward(l *Learner)
	// Stepped is called after the optimizer's step, when its numbers are read. It returns the norm of the gradients that frozen
	// parameters keep, or nil.
	Stepped(l *Learner) (frozenNorm *float64)
	// End is called before the optimizer is freed.
	End(l *Learner)
	// State returns what a saved state has to hold by name, and Restore sets it.
	State(l *Learner) map[string][]float32
	Restore(l *Learner, saved map[string][]float32) error
}

// lrGroup is a part of the parameters with a learning rate of its own.
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

// ownRates returns the groups whose learning rate is not the phase's, lr. Each must have parameters.
func (o OptimOptions) ownRates(p *torchx.Params, lr float64) ([]lrGroup, error) {
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

// Check asks what NewLearner asks of the parameters.
func (o OptimOptions) Check(p *torchx.Params, lr float64, freeze []string) error {
	if _, err := o.ownRates(p, lr); err != nil {
		return err
	}
	_, err := frozenNames(p, freeze)
	return err
}

// Expected returns what the rows of a learner must look like.
func (o OptimOptions) Expected(lr float64, sched schedule.LROptions) doctor.Limits {
	return doctor.Limits{LR: lr, LRPlan: doctor.Plan(sched), ClipNorm: o.GradClipNorm, Beta1: o.Betas[0]}
}

// NewLearner returns the optimizer of a phase of total steps with peak learning rate lr. Parameters whose name contains
// one of freeze stay as they are.
func NewLearner(env *Env, phase string, opt OptimOptions, lr float64, sched schedule.LROptions, total int, freeze []string) (*Learner,
	error) {
	p := env.Policy.Params()
	groups, err := opt.ownRates(p, lr)
	if err != nil {
		return nil, err
	}
	frozen, err := frozenNames(p, freeze)
	if err != nil {
		return nil, err
	}
	l := &Learner{Params: p, Optimizer: torchx.NewAdamW(p, opt.Betas[0], opt.Betas[1], opt.Eps, opt.WeightDecay),
		Frozen: frozenParts(p, frozen),
		phase:  phase, env: env, clip: opt.GradClipNorm, lr: lr, sched: sched, total: total, groups: groups}
	if len(groups) > 0 || len(frozen) > 0 {
		l.Optimizer.ScaleLR(func(name string) float64 { return l.lrScale(name, frozen[name]) })
	}
	if env.Gradients != nil {
		env.Gradients.Begin(phase, l)
	}
	return l, nil
}

// lrScale returns the factor between a parameter's learning rate and the phase's.
func (l *Learner) lrScale(name string, frozen bool) float64 {
	if frozen {
		return 0
	}
	for _, g := range l.groups {
		if g.of(name) {
			return *g.lr / l.lr
		}
	}
	return 1
}

// OptimizerMetrics are the numbers of an optimizer step.
type OptimizerMetrics struct {
	Loss           float64  `metric:"loss"`
	GradNorm       float64  `metric:"grad_norm"` // before clipping
	LR             float64  `metric:"lr"`
	ProjectorLR    *float64 `metric:"lr_mm_projector"`
	TowerLR        *float64 `metric:"lr_vision_tower"`
	ClipFactor     *float64 `metric:"clip_factor"`
	FrozenGradNorm *float64 `metric:"frozen_grad_norm"` // of the gradients that a GradientHook keeps in frozen parameters
	MomentNorm     float64  `metric:"moment_norm"`
	OptimizerSteps int      `metric:"optimizer_steps"`
	GraphShare     *float64 `metric:"graph_share"` // on CUDA: 1 where the step was launched as one graph
}

// rate is the learning rate of a step (from 0).
func (l *Learner) rate(step int) float64 { return l.lr * l.sched.At(step, l.total) }

// land reads the numbers of a step that was launched: the optimizer's, and what else was measured. Nothing has changed when a loss
// or the gradient is not finite: that is a *NonFiniteError, unless the run allows it. A step that is traced changes nothing either. sync
func (l *Learner) land(f *flight) (m OptimizerMetrics, values [][]float64, err error) {
	values = f.values()
	lr := f.lr
	loss, norm := 0.0, math.Sqrt(values[0][0]) // before clipping
	for _, part := range values[2] {
		loss += part
	}
	if (notFinite(loss) || notFinite(norm)) && !l.env.AllowNonFinite {
		l.Optimizer.Refused()
		return m, nil, refusal(loss, norm)
	}
	m = OptimizerMetrics{Loss: loss, GradNorm: norm, LR: lr, MomentNorm: math.Sqrt(values[1][0]), OptimizerSteps: f.steps}
	if l.Params.Flat().OnCUDA() {
		m.GraphShare = new(0.0)
		if f.graph {
			*m.GraphShare = 1
		}
	}
	l.Scale = 1.0
	if l.clip > 0 {
		l.Scale = math.Min(1, l.clip/(norm+1e-6)) // NaN stays NaN
		m.ClipFactor = new(l.Scale)
	}
	for _, g := range l.groups {
		*g.metric(&m) = new(lr / l.lr * *g.lr)
	}
	if hook := l.env.Gradients; hook != nil {
		m.FrozenGradNorm = hook.Stepped(l)
	}
	return m, values[3:], nil
}

// descend makes the passes and the optimizer step. It returns what is read of them: Σ g², Σ m², the losses [n] and what w measures.
func (l *Learner) descend(w *Work, lr float64) ([]torchx.Tensor, error) {
	l.Params.ZeroGrad()
	losses, measured := w.Passes()
	for _, part := range l.Frozen {
		torchx.Copy(part.Grad, torchx.FullLike(part.Grad, 0, part.Grad.DType(), 1))
	}
	if hook := l.env.Gradients; hook != nil {
		hook.Backward(l)
	}
	if torchx.Tracing() {
		return nil, errTraced
	}
	parts, squares := flat(losses), torchx.SumSquares(l.Params.Grad())
	l.Optimizer.StepClipped(lr, l.clip, squares, parts, !l.env.AllowNonFinite)
	return append([]torchx.Tensor{squares, torchx.SumSquares(l.Optimizer.Moment()), parts}, measured...), nil
}

// flat joins scalars [n]; no tensor where there are none.
func flat(scalars []torchx.Tensor) torchx.Tensor {
	if len(scalars) == 0 {
		return torchx.Tensor{}
	}
	for i, x := range scalars {
		scalars[i] = torchx.Reshape(x, 1)
	}
	return torchx.Cat(0, scalars...)
}

// refusal is the error of a step whose loss or gradient norm is not finite.
func refusal(loss, norm float64) error {
	if notFinite(loss) {
		return &NonFiniteError{What: fmt.Sprintf("the loss is %v", loss), Hint: "lower the learning rate or look at the rewards"}
	}
	return &NonFiniteError{What: fmt.Sprintf("the gradient norm is %v at loss %g", norm, loss), Hint: "lower the learning rate"}
}

// State returns the optimizer's moments and what the gradient hook keeps.
func (l *Learner) State() PhaseState {
	m, v, steps := l.Optimizer.State()
	s := PhaseState{Values: json.RawMessage("{}"), M: m, V: v, OptimizerSteps: steps, Frozen: map[string][]float32{}}
	if l.env.Gradients != nil {
		maps.Copy(s.Frozen, l.env.Gradients.State(l))
	}
	return s
}

// Restore sets what State returned.
func (l *Learner) Restore(s PhaseState) error {
	if err := l.Optimizer.SetState(s.M, s.V, s.OptimizerSteps); err != nil || l.env.Gradients == nil {
		return err
	}
	return l.env.Gradients.Restore(l, s.Frozen)
}

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// Free ends the phase's learning.
func (l *Learner) Free() {
	if l.env.Gradients != nil {
		l.env.Gradients.End(l)
	}
	for _, r := range l.recordings {
		r.free()
	}
	l.Optimizer.Free()
	for _, part := range l.Frozen {
		part.Grad.Free()
	}
}

// FrozenPart is a stretch [Start, End) of the flat buffers that a phase leaves as it is. Its gradient is 0 in every step,
// unless a GradientHook puts another one there.
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
			if strings.Contains(name, part) {
				names[name], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("freeze: %q is in no parameter's name; there are %s", part, strings.Join(p.Names(), ", "))
		}
	}
	return names, nil
}

// frozenParts returns the stretches of the named parameters, neighbours as one.
func frozenParts(p *torchx.Params, names map[string]bool) []FrozenPart {
	var parts []FrozenPart
	for name := range names {
		start, end := p.Range(name)
		parts = append(parts, FrozenPart{Start: start, End: end})
	}
	slices.SortFunc(parts, func(a, b FrozenPart) int { return a.Start - b.Start })
	var merged []FrozenPart
	for _, part := range parts {
		if n := len(merged); n > 0 && merged[n-1].End == part.Start {
			merged[n-1].End = part.End
		} else {
			merged = append(merged, part)
		}
	}
	defer torchx.Scope()()
	for i, part := range merged {
		merged[i].Grad = torchx.Own(torchx.Narrow(p.Grad(), 0, part.Start, part.End-part.Start))
	}
	return merged
}
