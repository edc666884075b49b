package leverplus

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
)

// This file fills the hooks of packages phases, rce and grpo with what the Python reference does.

// Hooks returns those of GRPO: advantages of normalised rewards within the top k, recorded groups that teach nothing, and
// cached log-probabilities with the noise of a step's shapes (defect D20).
func Hooks(normalize func([]float64) []float64) grpo.Hooks {
	return grpo.Hooks{AnySignal: true, CacheLikeSteps: true,
		Advantages: func(b *selector.Batch, o grpo.Options, epoch int) (advantage.Selection, []float64, advantage.Stats) {
			return o.Curriculum.ApplyCompat(objective.NormalizeGroups(b, normalize), b.Valid, b.B(), b.G, epoch, o.Advantage.Clip)
		}}
}

// Weights returns RCE's weights of a batch. With top1 they imitate the first listed beam by the mean over its steps
// (defect D14); otherwise an infinite reward makes the weights of its group NaN.
func Weights(top1, normalized, relative bool, normalize func([]float64) []float64) func(*selector.Batch, float64) ([]float64,
	group.WeightStats) {
	return func(b *selector.Batch, tau float64) ([]float64, group.WeightStats) {
		if top1 {
			return firstWeights(b)
		}
		rewards := b.Rewards
		if normalized {
			rewards = objective.NormalizeGroups(b, normalize)
		}
		w, stats := group.Weights(rewards, b.Valid, b.B(), b.G, tau, relative)
		for i, r := range rewards {
			for at := i / b.G * b.G; math.IsInf(r, 1) && at < (i/b.G+1)*b.G; at++ { // as torch.softmax does
				w[at] = math.NaN()
			}
		}
		return w, stats
	}
}

// firstWeights puts 1/T on the first listed candidate of each query.
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

// MeanOfBatches returns the mean over batches of their means, a short last batch weighing as much as a full
// one (defect D16). NaN when there is nothing.
func MeanOfBatches(batch int) func([]float64) float64 {
	return func(x []float64) float64 {
		var means []float64
		for at := 0; at < len(x); at += batch {
			means = append(means, stat.Mean(x[at:min(at+batch, len(x))]))
		}
		return stat.Mean(means)
	}
}

// Freeze returns those of parts that a parameter's name contains, or all where none is in any: one is enough.
func Freeze(names, parts []string) []string {
	found := list.Filter(parts, func(part string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, part) })
	})
	if len(found) == 0 {
		return parts
	}
	return found
}

// StaleGradients is the gradient that frozen parameters keep in GRPO (defect D6): the clipped one of the last step of rce.
// It enters the norm of every step and is clipped with it each time.
type StaleGradients struct {
	last  []float32       // [N] the clipped gradient that rce ended with; nil: none
	stale []torchx.Tensor // of the learner's frozen parts; nil: none
	kept  bool            // last was restored: rce has made no step since
}

const (
	keeper       = "rce" // the phase whose last gradient is kept
	lastGradient = "last_gradient"
)

func (s *StaleGradients) Begin(phase string, l *phases.Learner) {
	s.stale = nil
	if phase == keeper {
		l.Optimizer.KeepGrad = true
		s.last, s.kept = nil, false
	} else if len(l.Frozen) > 0 && s.last != nil {
		s.set(l, s.last)
	}
}

// set gives the frozen parts their stretches of a whole gradient [N].
func (s *StaleGradients) set(l *phases.Learner, gradient []float32) {
	defer torchx.Scope()()
	s.free()
	for _, part := range l.Frozen {
		s.stale = append(s.stale, torchx.Own(torchx.ToLike(torchx.From(gradient[part.Start:part.End], part.End-part.Start), part.Grad)))
	}
}

func (s *StaleGradients) Backward(l *phases.Learner) {
	for i, gradient := range s.stale {
		torchx.Copy(l.Frozen[i].Grad, gradient)
	}
}

func (s *StaleGradients) Stepped(l *phases.Learner) (frozenNorm *float64) {
	s.kept = false
	if s.stale == nil {
		return nil
	}
	var sum torchx.Tensor
	for _, gradient := range s.stale {
		torchx.Copy(gradient, torchx.Scale(gradient, l.Scale))
		squares := torchx.Sum(torchx.Square(gradient.To(torchx.Float64)))
		if sum.Nil() {
			sum = squares
		} else {
			sum = torchx.Add(sum, squares)
		}
	}
	return new(torchx.Sqrt(sum).Item())
}

// clipped returns the gradient of rce's last step after clipping; nil before its first.
func (s *StaleGradients) clipped(l *phases.Learner) []float32 {
	if !l.Optimizer.KeepGrad || s.kept || l.Optimizer.Steps() == 0 {
		return s.last
	}
	g := torchx.Data[float32](l.Params.Grad())
	for i := range g {
		g[i] *= float32(l.Scale)
	}
	return g
}

func (s *StaleGradients) End(l *phases.Learner) {
	if l.Optimizer.KeepGrad {
		s.last = s.clipped(l)
	}
	s.free()
}

func (s *StaleGradients) free() {
	for _, gradient := range s.stale {
		gradient.Free()
	}
	s.stale = nil
}

func (s *StaleGradients) State(l *phases.Learner) map[string][]float32 {
	switch {
	case l.Optimizer.KeepGrad:
		if g := s.clipped(l); g != nil {
			return map[string][]float32{lastGradient: g}
		}
	case s.stale != nil:
		out := make([]float32, l.Params.Numel())
		for i, part := range l.Frozen {
			copy(out[part.Start:], torchx.Data[float32](s.stale[i]))
		}
		return map[string][]float32{lastGradient: out}
	}
	return nil
}

func (s *StaleGradients) Restore(l *phases.Learner, saved map[string][]float32) error {
	gradient, ok := saved[lastGradient]
	switch {
	case ok && len(gradient) != l.Params.Numel():
		return fmt.Errorf("the saved gradient has %d values, want %d", len(gradient), l.Params.Numel())
	case l.Optimizer.KeepGrad && l.Optimizer.Steps() > 0 && !ok:
		return fmt.Errorf("the saved state lacks the last gradient")
	case l.Optimizer.KeepGrad:
		s.last, s.kept = gradient, true
	case ok && len(l.Frozen) > 0:
		s.set(l, gradient)
	}
	return nil
}
