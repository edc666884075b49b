package torchx

// #include "csrc/fulcrum_torch.h"
// #include "csrc/trace.h"
import "C"

import (
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"
)

// Origin is where a computation first made a NaN or an infinity that reached its loss or its gradient.
type Origin struct {
	Op       string // exp, or of a gradient ExpBackward0
	Shapes   string // of its inputs, or of the gradients that reached it
	Where    string // the line that called the operation; "" where unknown
	Gradient bool   // made on the way back
	Given    bool   // its own input was not finite: a weight, or data from the host
}

func (o *Origin) String() string {
	name := fmt.Sprintf("%s(%s)", o.Op, o.Shapes)
	if o.Where != "" {
		name += " in " + o.Where
	}
	switch {
	case o.Given:
		return name + " was given a number that is not finite: a weight, or data"
	case o.Gradient:
		return name + " made the first gradient that is not finite"
	}
	return name + " made the first number that is not finite"
}

// record is one tensor that was made while tracing.
type record struct {
	op     string
	shapes []string
	inputs []*record // nil entries: made before
	sound  bool      // no NaN, no infinity
	given  bool      // an input that was made before is not sound
	where  string
}

// trace follows what every operation makes.
type trace struct {
	op     string // of the call in hand
	in     []Tensor
	made   map[*unsafe.Pointer]*record
	nodes  map[string]*record // by the autograd node that an operation left behind
	origin *Origin
}

// tracing is the trace in progress; nil, as in all but a repeated step, costs a comparison an operation.
var tracing *trace

// Tracing reports whether operations are being traced.
func Tracing() bool { return tracing != nil }

// Trace runs f and follows every operation in it, slowly. It returns where the first loss given to Backward got
// its NaN or infinity from or, when the losses are finite, what made a gradient that is not; nil where all is
// finite. An infinity on the side, such as a mask that a softmax turns into zeros, is no origin.
func Trace(f func() error) (*Origin, error) {
	tracing = &trace{made: map[*unsafe.Pointer]*record{}, nodes: map[string]*record{}}
	defer func() { tracing = nil }()
	err := Try(f)
	return tracing.origin, err
}

// look records the tensor that the call in hand has made.
func (t *trace) look(made Tensor) {
	r := &record{op: t.op, sound: sound(made)}
	for _, x := range t.in {
		if x.Nil() { // an optional input that is not there
			continue
		}
		r.shapes = append(r.shapes, x.describe())
		from, known := t.made[x.t.T]
		r.inputs = append(r.inputs, from)
		if !known && !r.sound && !sound(x) {
			r.given = true
		}
	}
	if r.op == "from" {
		r.given = true
	}
	r.where = callers()
	t.made[made.t.T] = r
	if node := C.fc_graph_node(made.c()); node != nil {
		t.nodes[fmt.Sprintf("%p", node)] = r
	}
}

// propagate is the backward pass from y.
func (t *trace) propagate(y, grad Tensor, keepGraph bool) {
	if r := t.made[y.t.T]; t.origin == nil && grad.Nil() && r != nil && !r.sound {
		t.origin = r.origin()
	}
	var first *C.char
	msg := C.fc_backward_traced(y.c(), grad.c(), C.bool(keepGraph), &first)
	check("backward", msg, y)
	if first == nil {
		return
	}
	text := C.GoString(first)
	C.fc_free_string(first)
	if t.origin != nil {
		return
	}
	part := strings.SplitN(text, "|", 3)
	t.origin = &Origin{Op: part[0], Shapes: part[2], Gradient: true}
	if r := t.nodes[part[1]]; r != nil {
		t.origin.Where = r.where
	}
}

// origin goes back through what is not finite to the operation whose inputs were. A mask's infinities are meant:
// what turns them into a NaN is not.
func (r *record) origin() *Origin {
	for _, in := range r.inputs {
		if in != nil && !in.sound && !in.masks() {
			return in.origin()
		}
	}
	return &Origin{Op: r.op, Shapes: strings.Join(r.shapes, ", "), Where: r.where, Given: r.given}
}

// masks reports whether all that is not finite in r was put there on purpose.
func (r *record) masks() bool {
	any := r.op == "full" || r.op == "masked_fill" || r.op == "scatter"
	moves := any || shapesOnly(r.op)
	for _, in := range r.inputs {
		if in != nil && !in.sound {
			if !in.masks() {
				return false
			}
			any = true
		}
	}
	return any && moves
}

// shapesOnly lists the operations that move numbers and make none.
func shapesOnly(op string) bool {
	switch op {
	case "narrow", "reshape", "expand", "transpose", "unsqueeze", "squeeze", "contiguous", "cast", "to", "alias", "detach", "cat",
		"stack", "index_select", "add":
		return true
	}
	return false
}

// sound reports whether x has neither NaN nor infinity; whole numbers never have.
func sound(x Tensor) bool {
	if x.Nil() {
		return true
	}
	switch x.DType() {
	case Float16, BFloat16, Float32, Float64:
	default:
		return true
	}
	var ok C.bool
	if msg := C.fc_all_finite(x.c(), &ok); msg != nil {
		C.fc_free_string(msg)
		return true
	}
	return bool(ok)
}

// callers names the line outside of this package that called the operation, and the line that called its function.
func callers() string {
	pc := make([]uintptr, 24)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)])
	var lines []string
	for {
		f, more := frames.Next()
		dir, name := path.Split(f.Function) // fulcrum/selector/, pointer.(*Policy).Forward
		pkg, name, _ := strings.Cut(name, ".")
		if folder, ours := strings.CutPrefix(dir+pkg, "fulcrum/"); ours && folder != "internal/torchx" {
			lines = append(lines, fmt.Sprintf("%s/%s:%d (%s)", folder, filepath.Base(f.File), f.Line, name))
		}
		if !more || len(lines) == 2 {
			return strings.Join(lines, ", called from ")
		}
	}
}
