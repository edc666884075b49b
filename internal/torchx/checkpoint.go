package torchx

// #include "csrc/fulcrum_torch.h"
import "C"

// segment is a part of the computation that Backward does again instead of having kept its insides.
type segment struct {
	x      Tensor // its input, with history
	border Tensor // its output, a leaf: where the gradient of what follows arrives
	f      func(Tensor) Tensor
	depth  int // of the scope that it was made in
}

// tape holds the segments that wait for Backward, in the order of the computation.
var tape []segment

// Checkpoint returns f(x) and keeps none of f's intermediate results: Backward runs f again (Chen et al. 2016,
// arXiv:1604.06174). f depends on x and on parameters alone, and computes the same each time (no fresh random
// numbers). Segments may be chained and nested in scopes; each serves one Backward. Without gradient it is f(x).
func Checkpoint(x Tensor, f func(Tensor) Tensor) Tensor {
	must("checkpoint", x)
	if !GradEnabled() {
		return f(x)
	}
	from := len(tape)
	border := RequireGrad(forward(x, f))
	for _, inner := range tape[from:] { // segments inside of f: it runs again
		inner.free()
	}
	tape = append(tape[:from], segment{Own(alias(x)), Own(alias(border)), f, len(scopes)})
	return border
}

// GradEnabled reports whether operations record a graph: they do outside of NoGrad.
func GradEnabled() bool { return bool(C.fc_grad_enabled()) }

// forward returns f(x) without history; all else that f makes is freed. f records its graph as it will again in
// Backward, since operations may take another way, with other roundings, where no gradient is asked for.
func forward(x Tensor, f func(Tensor) Tensor) Tensor {
	defer Scope()()
	return Keep(Detach(f(leaf(x))))
}

// leaf is x without its history, with a gradient where x has one.
func leaf(x Tensor) Tensor {
	if !x.RequiresGrad() {
		return Detach(x)
	}
	return RequireGrad(Detach(x))
}

// backward takes the gradient of y (no tensor: of a scalar) to all leaves, through the segments recorded since
// the tape had `from`, the latest first. Segments that no gradient has reached wait on.
func backward(y, grad Tensor, from int) {
	propagate(y, grad, len(tape) > 0)
	for i := len(tape) - 1; i >= from; i-- {
		if s := tape[i]; bool(C.fc_has_grad(s.border.c())) {
			s.backward()
			s.free()
			tape = append(tape[:i], tape[i+1:]...)
		}
	}
}

// propagate takes the gradient of y (no tensor: of a scalar) to the leaves of its graph.
func propagate(y, grad Tensor, keepGraph bool) {
	if tracing != nil {
		tracing.propagate(y, grad, keepGraph)
		return
	}
	check("backward", C.fc_backward(y.c(), grad.c(), C.bool(keepGraph)), y)
}

// backward computes f once more, now with history, and takes the border's gradient through it to the input.
func (s segment) backward() {
	defer Scope()()
	x, from := leaf(s.x), len(tape)
	y := s.f(x)
	if !y.RequiresGrad() {
		return // a function of constants
	}
	backward(y, Grad(s.border), from)
	if s.x.RequiresGrad() && bool(C.fc_has_grad(x.c())) {
		propagate(s.x, Grad(x), true) // keeps a graph that others may use
	}
}

func (s segment) free() {
	s.x.Free()
	s.border.Free()
}

// endSegments lets go of the segments of an ended scope, the latest first. One whose border a graph still holds
// belongs to a result that was kept, so it moves one scope out.
func endSegments(depth int) {
	for i := len(tape) - 1; i >= 0; i-- {
		s := &tape[i]
		if s.depth < depth {
			break
		}
		if s.depth = depth - 1; depth > 1 && C.fc_use_count(s.border.c()) > 1 {
			continue
		}
		s.free()
		tape = append(tape[:i], tape[i+1:]...)
	}
}

func alias(x Tensor) Tensor {
	return made("alias", func(out *C.Tensor) *C.char { return C.fc_alias(x.c(), out) }, x)
}
