package torchx

// #include "csrc/adamw.h"
// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"fmt"
	"iter"
	"math"
	"slices"
)

// AdamW is the optimiser's state over the flat buffer of Params (Loshchilov & Hutter 2019,
// arXiv:1711.05101, as PyTorch's torch.optim.AdamW computes it).
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64

	params  *Params
	keep    string
	from    int    // of the parameters that it updates: all, or a part
	m, v    Tensor // [n] first and second moment of these
	lrScale Tensor // [N] or none: per-parameter learning-rate factors; 0 freezes
	steps   int
	rates   Tensor // [4] of the next step where the device has to know them (Stage), or none
	refused Tensor // [1] on CUDA: not 0 once a step was not finite, and nothing is changed any more

	KeepGrad bool // leave the gradient as it is after a step; otherwise it is zero then
}

// How an AdamW keeps its moments between steps.
const (
	KeepFloat32  = "float32"  // beside the parameters
	KeepBFloat16 = "bfloat16" // in half the memory, rounded at random: to the nearest, a second moment at β₂ = 0.999 would stand still
	KeepOffload  = "offload"  // in the host's memory; no number changes
)

// NewAdamW returns an optimiser with zero moments.
func NewAdamW(p *Params, beta1, beta2, eps, weightDecay float64) *AdamW {
	return NewAdamWKept(KeepFloat32, p, 0, 1, beta1, beta2, eps, weightDecay)
}

// NewAdamWKept is NewAdamW with moments kept in one of the ways above, which updates the share of process rank of size alone (ZeRO-1,
// Rajbhandari et al. 2020, arXiv:1910.02054): it keeps moments of these parameters only.
func NewAdamWKept(keep string, p *Params, rank, size int, beta1, beta2, eps, weightDecay float64) *AdamW {
	from, to := p.Share(rank, size)
	a := &AdamW{Beta1: beta1, Beta2: beta2, Eps: eps, WeightDecay: weightDecay, params: p, keep: keep, from: from}
	like, dtype := p.flat, Float32
	switch {
	case keep == KeepBFloat16:
		dtype = BFloat16
	case keep == KeepOffload && p.flat.OnCUDA():
		like = Tensor{}
	default:
		a.keep = KeepFloat32
	}
	a.m, a.v = Own(FullLike(like, 0, dtype, to-from)), Own(FullLike(like, 0, dtype, to-from))
	if p.flat.OnCUDA() {
		a.refused = Own(FullLike(p.flat, 0, Float32, 1))
	}
	return a
}

// Kept says why steps are no sequence of operations that a CUDA graph holds, if so.
func (a *AdamW) Kept() (why string) {
	if a.keep != KeepFloat32 {
		why = "moments are kept as " + a.keep
	}
	return why
}

// stretch is the number of parameters whose moments are float32 on the device at a time, where they are not kept so, and of which the
// squares are added before those of others.
var stretch = 1 << 23

// grain is the number of parameters on a CPU that the same process updates: a part of a sum of squares.
var grain = C.FC_GRAIN

// Share is the share [from, to) that process rank of size has of the flat buffer.
func (p *Params) Share(rank, size int) (from, to int) {
	unit := p.unit()
	units := (p.Numel() + unit - 1) / unit
	return rank * units / size * unit, min((rank+1)*units/size*unit, p.Numel())
}

// unit is the number of parameters of one of MomentParts.
func (p *Params) unit() int {
	if p.flat.OnCUDA() {
		return stretch
	}
	return grain
}

// whole reports whether all parameters are updated here.
func (a *AdamW) whole() bool { return a.m.Numel() == a.params.Numel() }

// each calls update with the parameters, gradients, moments and factors that are updated together.
func (a *AdamW) each(update func(p, g, m, v, scale Tensor)) {
	if a.keep == KeepFloat32 && a.whole() {
		update(a.params.flat, a.params.grad, a.m, a.v, a.lrScale)
		return
	}
	for at, n := range a.stretches() {
		end := Scope()
		part := func(x Tensor) Tensor {
			if x.Nil() {
				return x
			}
			return Narrow(x, 0, at, n)
		}
		m, v := Narrow(a.m, 0, at-a.from, n), Narrow(a.v, 0, at-a.from, n)
		m32, v32 := m, v
		if a.keep != KeepFloat32 {
			m32, v32 = ToLike(m.To(Float32), a.params.flat), ToLike(v.To(Float32), a.params.flat)
		}
		update(part(a.params.flat), part(a.params.grad), m32, v32, part(a.lrScale))
		switch a.keep {
		case KeepBFloat16:
			check("adamw", C.fc_round_moments(m32.c(), v32.c(), m.c(), v.c(), C.int64_t(a.steps), C.int64_t(at)), m32, v32)
		case KeepOffload:
			Copy(m, m32)
			Copy(v, v32)
		}
		end()
	}
}

// stretches yields where they begin in the flat buffer, and how many parameters they have.
func (a *AdamW) stretches() iter.Seq2[int, int] {
	return func(yield func(at, n int) bool) {
		to := a.from + a.m.Numel()
		for at := a.from; at < to && yield(at, min(stretch, to-at)); at += stretch {
		}
	}
}

// MomentParts returns parts of Σ m², of which AddSquares makes what MomentSquares gives when those of all processes follow one another.
// sync
func (a *AdamW) MomentParts() []float64 {
	return a.squareParts(func(at, n int) Tensor { return ToLike(Narrow(a.m, 0, at-a.from, n).To(Float32), a.params.flat) })
}

// GradientParts returns parts of Σ g² of what is updated here; the sum of those of all processes is that of one. sync
func (a *AdamW) GradientParts() []float64 {
	return a.squareParts(func(at, n int) Tensor { return Narrow(a.params.grad, 0, at, n) })
}

func (a *AdamW) squareParts(of func(at, n int) Tensor) (parts []float64) {
	defer Scope()()
	for at, n := range a.stretches() {
		x := of(at, n)
		part := made("square_parts", func(out *C.Tensor) *C.char { return C.fc_square_parts(x.c(), out) }, x)
		parts = append(parts, Data[float64](part)...)
	}
	return parts
}

// AddSquares adds the parts of a sum of squares in the order in which one process adds them.
func (p *Params) AddSquares(parts []float64) (total float64) {
	for of := range slices.Chunk(parts, max(stretch/p.unit(), 1)) {
		sum := 0.0
		for _, part := range of {
			sum += part
		}
		total += sum
	}
	return total
}

// MomentSquares returns Σ m² [1] of the first moment, in float64, the same wherever it is kept.
func (a *AdamW) MomentSquares() (sum Tensor) {
	for at, n := range a.stretches() {
		part := SumSquares(ToLike(Narrow(a.m, 0, at-a.from, n).To(Float32), a.params.flat))
		if sum.Nil() {
			sum = part
		} else {
			sum = Add(sum, part)
		}
	}
	return sum
}

// ScaleLR multiplies the learning rate of each parameter by scale(name): 0 freezes it.
func (a *AdamW) ScaleLR(scale func(name string) float64) {
	a.lrScale.Free()
	data := make([]float32, a.params.Numel())
	for _, name := range a.params.names {
		lo, hi := a.params.Range(name)
		v := float32(scale(name))
		for i := lo; i < hi; i++ {
			data[i] = v
		}
	}
	defer Scope()()
	a.lrScale = Own(ToLike(From(data, len(data)), a.params.flat))
}

// Step updates the parameters with gradients multiplied by gradScale (the clipping factor) at rate lr, and
// clears the gradients in the same pass.
func (a *AdamW) Step(lr, gradScale float64) { a.step(lr, gradScale, Tensor{}, Tensor{}, false) }

// StepClipped is Step with the clipping factor min(1, clip/(norm + 1e-6)), computed from squares (Σ g² [1], of SumSquares)
// where the parameters lie, so that the host need not wait for it; clip 0 cuts nothing. With guard nothing changes where squares or
// one of losses [n] (or no tensor) is not finite; the caller, who learns that later, calls Refused. On CUDA no later step changes anything
// then either, so that steps may be queued before the host has seen the numbers of those before.
func (a *AdamW) StepClipped(lr, clip float64, squares, losses Tensor, guard bool) {
	must("adamw", squares)
	if !a.params.flat.OnCUDA() {
		a.step(lr, clip, squares, losses, guard)
		return
	}
	if a.rates.Nil() {
		var up Upload
		a.Stage(lr, &up)
		up.Send(a.params.flat)
	}
	a.Replayed()
	a.each(func(p, g, m, v, scale Tensor) {
		check("adamw", C.fc_adamw_queued(p.c(), g.c(), m.c(), v.c(), scale.c(), nil, squares.c(), losses.c(), a.refused.c(), C.bool(guard),
			C.double(clip), a.rates.c(), C.double(a.Beta1), C.double(a.Beta2), C.double(a.Eps), C.double(a.WeightDecay), C.bool(!a.KeepGrad)))
	})
	a.rates = Tensor{}
}

// Stage adds to up what StepClipped has to know on CUDA of a step at rate lr.
func (a *AdamW) Stage(lr float64, up *Upload) {
	if a.params.flat.OnCUDA() {
		t := float64(a.steps + 1)
		Put(up, &a.rates, []float64{lr, 1 - math.Pow(a.Beta1, t), math.Sqrt(1 - math.Pow(a.Beta2, t)), t}, 4)
	}
}

// Replayed counts a step that a recorded StepClipped has made.
func (a *AdamW) Replayed() {
	a.steps++
	a.params.clean = !a.KeepGrad && a.whole()
}

func (a *AdamW) step(lr, gradScale float64, squares, losses Tensor, guard bool) {
	a.Replayed()
	a.each(func(p, g, m, v, scale Tensor) {
		check("adamw", C.fc_adamw(p.c(), g.c(), m.c(), v.c(), scale.c(), nil, squares.c(), losses.c(), C.bool(guard), C.double(gradScale),
			C.double(lr), C.double(a.Beta1), C.double(a.Beta2), C.double(a.Eps), C.double(a.WeightDecay), C.int64_t(a.steps),
			C.bool(!a.KeepGrad)))
	})
}

// Unrecorded sets the count of steps back, and the gradient is zero as before, when a step was recorded and not made.
func (a *AdamW) Unrecorded(steps int) {
	a.steps, a.rates = steps, Tensor{}
	a.params.clean = !a.KeepGrad
}

// Refused takes back the count of a step that changed nothing because its gradient or loss is not finite.
func (a *AdamW) Refused() {
	a.steps--
	a.params.clean = false
}

func (a *AdamW) Steps() int { return a.steps }

// State copies the moments of the parameters that it updates to the host, with the number of steps taken. sync
func (a *AdamW) State() (m, v []float32, steps int) {
	defer Scope()()
	return Data[float32](a.m.To(Float32)), Data[float32](a.v.To(Float32)), a.steps
}

// SetState restores what State returned, from the moments of all parameters.
func (a *AdamW) SetState(m, v []float32, steps int) error {
	if n := a.params.Numel(); len(m) != n || len(v) != n {
		return fmt.Errorf("optimizer state has %d and %d values, want %d", len(m), len(v), n)
	}
	defer Scope()()
	m, v = m[a.from:][:a.m.Numel()], v[a.from:][:a.m.Numel()]
	Copy(a.m, From(m, len(m)))
	Copy(a.v, From(v, len(v)))
	a.steps = steps
	return nil
}

func (a *AdamW) Free() {
	a.m.Free()
	a.v.Free()
	a.lrScale.Free()
	a.refused.Free()
}
