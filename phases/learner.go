package phases

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil/schedule"
)

// Learner is a phase's optimizer and learning-rate schedule.
type Learner struct {
	Params    *torchx.Params
	Optimizer *torchx.AdamW
	Frozen    []FrozenPart // parameters that the phase does not change
	Scale     float64      // the clipping factor of the last step

	phase    string
	env      *Env
	clip, lr float64
	sched    schedule.LROptions
	total    int // optimizer steps of the whole phase
	groups   []lrGroup

	sender     *torchx.Sender        // of its gradient to other processes, during backward passes (early.go)
	recordings map[string]*recording // of steps, by Key and layout (record.go)
	remarked   bool                  // the log says why steps are not recorded
}

// GradientHook sees the gradients of a run's optimizer steps and may change them.
type GradientHook interface {
	// Begin is called when a phase has made its optimizer.
	Begin(phase string, l *Learner)
	// Backward is called after the backward passes of a step, before the norm is taken.
	Backward(l *Learner)
	// Stepped is called after the optimizer's step, when its numbers are read. It returns the norm of the gradients kept in
	// frozen parameters, or nil.
	Stepped(l *Learner) (frozenNorm *float64)
	// End is called before the optimizer is freed.
	End(l *Learner)
	// State returns vectors for a saved state by name; Restore sets them.
	State(l *Learner) map[string][]float32
	Restore(l *Learner, saved map[string][]float32) error
}

// NewLearner returns the optimizer of a phase of total steps with peak learning rate lr. Parameters whose name contains
// an entry of freeze do not change.
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
	l := &Learner{Params: p, Optimizer: torchx.NewAdamWKept(opt.State, p, env.Ranks.Rank(), env.Ranks.Size(), opt.Betas[0], opt.Betas[1],
		opt.Eps, opt.WeightDecay), Frozen: frozenParts(p, frozen), phase: phase, env: env, clip: opt.GradClipNorm, lr: lr, sched: sched,
		total: total, groups: groups}
	if len(groups) > 0 || len(frozen) > 0 {
		l.Optimizer.ScaleLR(func(name string) float64 { return l.lrScale(name, frozen[name]) })
	}
	if env.Gradients != nil {
		env.Gradients.Begin(phase, l)
	}
	return l, nil
}

// lrScale returns a parameter's learning rate over the phase's.
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

// land reads the numbers of a launched step: the optimizer's and the phase's. If a loss or the gradient is not finite, the weights have not
// changed and land returns a *NonFiniteError, unless the run allows such numbers. A traced step changes no weight either. sync
func (l *Learner) land(f *flight) (m OptimizerMetrics, values [][]float64, err error) {
	values = f.values()
	lr := f.lr
	loss, norm := stat.Sum(values[2]), math.Sqrt(values[0][0]) // before clipping
	if (notFinite(loss) || notFinite(norm)) && !l.env.AllowNonFinite {
		l.Optimizer.Refused()
		if notFinite(loss) {
			return m, nil, &NonFiniteError{What: fmt.Sprintf("the loss is %v", loss), Hint: "lower the learning rate or look at the rewards"}
		}
		return m, nil, &NonFiniteError{What: fmt.Sprintf("the gradient norm is %v at loss %g", norm, loss), Hint: "lower the learning rate"}
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

// flat joins scalars to a vector [n]; undefined for none.
func flat(scalars []torchx.Tensor) torchx.Tensor {
	if len(scalars) == 0 {
		return torchx.Tensor{}
	}
	for i, x := range scalars {
		scalars[i] = torchx.Reshape(x, 1)
	}
	return torchx.Cat(0, scalars...)
}

// State returns the moments of the parameters that this process updates, and the vectors of the gradient hook.
func (l *Learner) State() PhaseState {
	m, v, steps := l.Optimizer.State()
	s := PhaseState{Values: json.RawMessage("{}"), M: m, V: v, OptimizerSteps: steps, Frozen: map[string][]float32{}}
	if l.env.Gradients != nil {
		maps.Copy(s.Frozen, l.env.Gradients.State(l))
	}
	return s
}

func (l *Learner) Restore(s PhaseState) error {
	if err := l.Optimizer.SetState(s.M, s.V, s.OptimizerSteps); err != nil || l.env.Gradients == nil {
		return err
	}
	return l.env.Gradients.Restore(l, s.Frozen)
}

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

func (l *Learner) Free() {
	if l.env.Gradients != nil {
		l.env.Gradients.End(l)
	}
	for _, r := range l.recordings {
		r.free()
	}
	if l.sender != nil {
		l.sender.Free()
	}
	l.Optimizer.Free()
	for _, part := range l.Frozen {
		part.Grad.Free()
	}
}
