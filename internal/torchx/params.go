package torchx

// #include "csrc/adamw.h"
// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"fmt"
	"math"
)

// Params holds a model's parameters as views of one flat buffer, and their gradients as views
// of another, so that zeroing, the gradient norm, the optimiser and snapshots are one pass each.
type Params struct {
	names  []string
	shapes [][]int
	views  []Tensor
	index  map[string]int
	flat   Tensor // [N]
	grad   Tensor // [N]
	offset []int
	parts  map[part]Tensor
	clean  bool // the gradient is all zeros
}

// part is a slice of a parameter along one dimension.
type part struct {
	name               string
	dim, start, length int
}

// Spec names one parameter and its shape.
type Spec struct {
	Name  string
	Shape []int
}

// NewParams allocates zeroed float32 parameters on device, in the given order.
func NewParams(specs []Spec, device string) *Params { return NewParamsOf(Float32, specs, device) }

// NewParamsOf is NewParams in another float type: gradient checks need float64.
func NewParamsOf(dtype DType, specs []Spec, device string) *Params {
	defer Scope()()
	p := &Params{index: map[string]int{}, parts: map[part]Tensor{}, clean: true}
	n := 0
	for i, s := range specs {
		if _, dup := p.index[s.Name]; dup {
			panic(&OpError{Op: "params", Msg: "parameter " + s.Name + " named twice"})
		}
		p.index[s.Name] = i
		p.names = append(p.names, s.Name)
		p.shapes = append(p.shapes, s.Shape)
		p.offset = append(p.offset, n)
		n += numel(s.Shape)
	}
	p.flat = Own(FullLike(Zeros(1).ToDevice(device), 0, dtype, n))
	p.grad = Own(FullLike(p.flat, 0, dtype, n))
	for i, s := range specs {
		shape, dims := cshape(s.Shape)
		p.views = append(p.views, Own(made("params", func(out *C.Tensor) *C.char {
			return C.fc_param_view(p.flat.c(), p.grad.c(), C.int64_t(p.offset[i]), shape, dims, out)
		})))
	}
	return p
}

// Names returns the parameter names in buffer order.
func (p *Params) Names() []string { return p.names }

func (p *Params) Numel() int           { return p.flat.Numel() }
func (p *Params) Has(name string) bool { _, ok := p.index[name]; return ok }

// Get returns the parameter called name; asking for one that is not there is a programming error.
func (p *Params) Get(name string) Tensor {
	i, ok := p.index[name]
	if !ok {
		panic(&OpError{Op: "params", Msg: "no parameter " + name})
	}
	return p.views[i]
}

// Part returns length entries of a parameter along dim, from start on, as a leaf of its own: its gradient
// goes straight into the parameter's. A computation uses either the parts of a parameter or the whole.
func (p *Params) Part(name string, dim, start, length int) Tensor {
	key := part{name, dim, start, length}
	if t, ok := p.parts[key]; ok {
		return t
	}
	whole := p.Get(name)
	p.parts[key] = Own(made("params", func(out *C.Tensor) *C.char {
		return C.fc_param_part(whole.c(), C.int64_t(dim), C.int64_t(start), C.int64_t(length), out)
	}, whole))
	return p.parts[key]
}

// Shape returns the shape of the parameter called name (nil when there is none).
func (p *Params) Shape(name string) []int {
	if i, ok := p.index[name]; ok {
		return p.shapes[i]
	}
	return nil
}

// Range returns where the parameter called name lies in the flat buffer: [start, end).
func (p *Params) Range(name string) (start, end int) {
	i := p.index[name]
	return p.offset[i], p.offset[i] + numel(p.shapes[i])
}

// Set overwrites one parameter (row-major) and leaves its gradient.
func (p *Params) Set(name string, data []float32) error {
	i, ok := p.index[name]
	if !ok {
		return fmt.Errorf("no parameter %s", name)
	}
	if len(data) != numel(p.shapes[i]) {
		return fmt.Errorf("parameter %s: got %d values, want shape %v", name, len(data), p.shapes[i])
	}
	defer Scope()()
	Copy(p.views[i], From(data, p.shapes[i]...))
	return nil
}

// Clean reports whether the gradient is known to be zero.
func (p *Params) Clean() bool { return p.clean }

// Flat returns the whole buffer [N]; a view, not a copy.
func (p *Params) Flat() Tensor { return p.flat }

// Grad returns the gradient buffer [N]; a view, not a copy.
func (p *Params) Grad() Tensor { return p.grad }

// Values copies all parameters to the host, flat. sync
func (p *Params) Values() []float32 { return Data[float32](p.flat) }

// SetValues overwrites all parameters from a flat copy.
func (p *Params) SetValues(v []float32) {
	defer Scope()()
	Copy(p.flat, From(v, len(v)))
}

// CopyFrom overwrites all parameters with those of q, which has the same layout.
func (p *Params) CopyFrom(q *Params) { Copy(p.flat, q.flat) }

// ZeroGrad clears the gradient buffer before a backward pass, unless AdamW's last step has done so.
func (p *Params) ZeroGrad() {
	if !p.clean {
		defer Scope()()
		Copy(p.grad, FullLike(p.grad, 0, p.grad.DType(), 1))
	}
	p.clean = false
}

// SumSquares returns Σ x² [1] in float64 on x's device, the same for any thread count.
func SumSquares(x Tensor) Tensor {
	return made("sum_squares", func(out *C.Tensor) *C.char { return C.fc_sum_squares(x.c(), out) }, x)
}

// GradNorm returns the global L2 norm of the gradient, summed in float64. sync
func (p *Params) GradNorm() float64 {
	defer Scope()()
	return math.Sqrt(SumSquares(p.grad).Item())
}

// Free releases the buffers. Tensors computed from them must be gone.
func (p *Params) Free() {
	for _, v := range p.views {
		v.Free()
	}
	for _, v := range p.parts {
		v.Free()
	}
	p.flat.Free()
	p.grad.Free()
}

// AdamW is the optimiser's state over the flat buffer of Params (Loshchilov & Hutter 2019,
// arXiv:1711.05101, as PyTorch's torch.optim.AdamW computes it).
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64

	params  *Params
	m, v    Tensor // [N] first and second moment
	lrScale Tensor // [N] or none: per-parameter learning-rate factors; 0 freezes
	steps   int
	rates   Tensor // [4] of the next step where the device has to know them (Stage), or none
	refused Tensor // [1] on CUDA: not 0 once a step was not finite, and nothing is changed any more

	KeepGrad bool // leave the gradient as it is after a step; otherwise it is zero then
}

// NewAdamW returns an optimiser with zero moments.
func NewAdamW(p *Params, beta1, beta2, eps, weightDecay float64) *AdamW {
	n := p.Numel()
	a := &AdamW{Beta1: beta1, Beta2: beta2, Eps: eps, WeightDecay: weightDecay, params: p,
		m: Own(FullLike(p.flat, 0, Float32, n)), v: Own(FullLike(p.flat, 0, Float32, n))}
	if p.flat.OnCUDA() {
		a.refused = Own(FullLike(p.flat, 0, Float32, 1))
	}
	return a
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
	check("adamw", C.fc_adamw_queued(a.params.flat.c(), a.params.grad.c(), a.m.c(), a.v.c(), a.lrScale.c(), nil, squares.c(),
		losses.c(), a.refused.c(), C.bool(guard), C.double(clip), a.rates.c(), C.double(a.Beta1), C.double(a.Beta2), C.double(a.Eps),
		C.double(a.WeightDecay), C.bool(!a.KeepGrad)))
	a.rates = Tensor{}
	a.Replayed()
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
	a.params.clean = !a.KeepGrad
}

func (a *AdamW) step(lr, gradScale float64, squares, losses Tensor, guard bool) {
	a.Replayed()
	check("adamw", C.fc_adamw(a.params.flat.c(), a.params.grad.c(), a.m.c(), a.v.c(), a.lrScale.c(), nil, squares.c(), losses.c(),
		C.bool(guard), C.double(gradScale), C.double(lr), C.double(a.Beta1), C.double(a.Beta2), C.double(a.Eps), C.double(a.WeightDecay),
		C.int64_t(a.steps), C.bool(!a.KeepGrad)))
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

// Moment returns the first moment [N]; a view, not a copy.
func (a *AdamW) Moment() Tensor { return a.m }

// State copies the moments to the host, with the number of steps taken. sync
func (a *AdamW) State() (m, v []float32, steps int) {
	return Data[float32](a.m), Data[float32](a.v), a.steps
}

// SetState restores what State returned.
func (a *AdamW) SetState(m, v []float32, steps int) error {
	if n := a.params.Numel(); len(m) != n || len(v) != n {
		return fmt.Errorf("optimizer state has %d and %d values, want %d", len(m), len(v), n)
	}
	defer Scope()()
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
