package torchx

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
	leaves []ofParam // of the graphs: views and parts
	clean  bool      // the gradient is all zeros
}

// part is a slice of a parameter along one dimension.
type part struct {
	name               string
	dim, start, length int
}

// ofParam is a leaf of a graph whose gradient is a parameter's, or a part of it.
type ofParam struct {
	of   Tensor
	name string
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
		p.leaves = append(p.leaves, ofParam{p.views[i], s.Name})
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
	p.leaves = append(p.leaves, ofParam{p.parts[key], name})
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
