// Package torchx is what gotorch lacks for training: the operations the policies need, memory that is
// freed when a scope ends, data in and out without element-wise copies, seeded generators, parameters
// in one flat buffer with a fused AdamW, and errors instead of crashes.
//
//	defer torchx.Scope()()                    // every tensor made below dies here …
//	logp := torchx.LogSoftmax(logits, -1)     // [B, K]
//	torchx.Backward(torchx.Mean(logp))
//
// It knows no policy and no training loop. Operations panic with *OpError (formulas stay formulas);
// Try turns that into an ordinary error at the border of a step. Tensors belong to one goroutine at a
// time: libtorch's gradient mode and thread pool are per OS thread, so call Attach on the goroutine
// that computes.
package torchx

// #include <stdlib.h>
// #include "csrc/fulcrum_torch.h"
// #include "csrc/upload.h"
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/wangkuiyi/gotorch"

	"fulcrum/internal/list"
)

// DType is a libtorch scalar type.
type DType int8

// The scalar types in use.
const (
	Uint8    DType = 0
	Int32    DType = 3
	Int64    DType = 4
	Float16  DType = 5
	Float32  DType = 6
	Float64  DType = 7
	Bool     DType = 11
	BFloat16 DType = 15
)

func (d DType) String() string {
	name, ok := map[DType]string{Uint8: "uint8", Int32: "int32", Int64: "int64", Float16: "float16", Float32: "float32",
		Float64: "float64", Bool: "bool", BFloat16: "bfloat16"}[d]
	if !ok {
		return fmt.Sprintf("dtype(%d)", int8(d))
	}
	return name
}

// Size returns the bytes of one element.
func (d DType) Size() int {
	switch d {
	case Int64, Float64:
		return 8
	case Int32, Float32:
		return 4
	case Float16, BFloat16:
		return 2
	}
	return 1
}

// Tensor is a gotorch tensor whose memory belongs to the current Scope instead of Go's collector.
// The zero Tensor is "no tensor".
type Tensor struct{ t gotorch.Tensor }

// OpError is what an operation panics with: the operation, what libtorch said, and the shapes it got.
type OpError struct {
	Op     string
	Msg    string
	Shapes []string
}

func (e *OpError) Error() string {
	msg := inShort(e.Msg)
	if len(e.Shapes) == 0 {
		return fmt.Sprintf("torchx: %s: %s", e.Op, msg)
	}
	return fmt.Sprintf("torchx: %s(%s): %s", e.Op, strings.Join(e.Shapes, ", "), msg)
}

// Try runs f and returns the *OpError that one of its operations panicked with, or f's own error.
// Other panics pass through.
func Try(f func() error) (err error) {
	defer Recover(&err)
	return f()
}

// Recover, deferred, stores an operation's *OpError in *err.
func Recover(err *error) {
	switch r := recover().(type) {
	case nil:
	case *OpError:
		*err = r
	default:
		panic(r)
	}
}

// Nil reports whether t is no tensor (or was freed).
func (t Tensor) Nil() bool { return t.t.T == nil || *t.t.T == nil }

// OnCUDA reports whether t lies on a CUDA device.
func (t Tensor) OnCUDA() bool { return !t.Nil() && bool(C.fc_is_cuda(t.c())) }

func (t Tensor) c() C.Tensor {
	if t.t.T == nil || *t.t.T == nil {
		return nil
	}
	return C.Tensor(*t.t.T)
}

type info struct {
	shape        []int
	dtype        DType
	requiresGrad bool
}

func (t Tensor) info() info {
	if t.Nil() {
		panic(&OpError{Op: "shape", Msg: "the tensor was freed: its scope has ended"})
	}
	var dims C.int64_t
	var shape [8]C.int64_t
	var dtype C.int8_t
	var grad C.bool
	C.fc_info(t.c(), &dims, &shape[0], &dtype, &grad)
	s := make([]int, int(dims))
	for i := range s {
		s[i] = int(shape[i])
	}
	return info{s, DType(dtype), bool(grad)}
}

// Shape returns the sizes of all dimensions.
func (t Tensor) Shape() []int { return t.info().shape }

func (t Tensor) DType() DType { return t.info().dtype }

// RequiresGrad reports whether autograd tracks t.
func (t Tensor) RequiresGrad() bool { return t.info().requiresGrad }

func (t Tensor) Numel() int { return numel(t.Shape()) }

func (t Tensor) describe() string {
	if t.Nil() {
		return "freed"
	}
	i := t.info()
	return strings.ReplaceAll(fmt.Sprint(i.shape), " ", ",") + i.dtype.String()
}

// MustShape panics with an *OpError unless t has exactly the given sizes (-1 = any): a checked comment
// for package borders. It returns t.
func MustShape(t Tensor, sizes ...int) Tensor {
	got := t.Shape()
	ok := len(got) == len(sizes)
	for i := 0; ok && i < len(sizes); i++ {
		ok = sizes[i] < 0 || sizes[i] == got[i]
	}
	if !ok {
		panic(&OpError{Op: "shape", Msg: fmt.Sprintf("got %v, want %v", got, sizes)})
	}
	return t
}

// --- life: scopes

// scopes holds the tensors of each open scope, innermost last. One goroutine computes at a time.
var scopes [][]*unsafe.Pointer

// live counts tensors that torchx has made and not freed, for leak tests.
var live int

// Scope opens a memory scope. The returned function frees every tensor made since, except kept ones:
//
//	defer torchx.Scope()()
func Scope() (end func()) {
	scopes = append(scopes, nil)
	depth := len(scopes)
	return func() {
		if len(scopes) < depth {
			return // an outer scope has ended already
		}
		for i := len(scopes) - 1; i >= depth-1; i-- {
			release(scopes[i])
			scopes[i] = nil
		}
		scopes = scopes[:depth-1]
		if len(tape) > 0 {
			endSegments(depth)
		}
	}
}

// Keep moves t out of the current scope into the one around it (or, outside the outermost, to the
// caller, who calls Free).
func Keep(t Tensor) Tensor {
	n := len(scopes)
	if n == 0 {
		return t
	}
	cur := scopes[n-1]
	for i := len(cur) - 1; i >= 0; i-- {
		if cur[i] == t.t.T {
			scopes[n-1] = append(cur[:i], cur[i+1:]...)
			if n > 1 {
				scopes[n-2] = append(scopes[n-2], t.t.T)
			}
			break
		}
	}
	return t
}

// Own takes t out of every scope: it lives until Free.
func Own(t Tensor) Tensor {
	for s := len(scopes) - 1; s >= 0; s-- {
		for i := len(scopes[s]) - 1; i >= 0; i-- {
			if scopes[s][i] == t.t.T {
				scopes[s] = append(scopes[s][:i], scopes[s][i+1:]...)
				return t
			}
		}
	}
	return t
}

// Free releases a tensor that no scope owns. Freeing twice does nothing.
func (t Tensor) Free() {
	if !t.Nil() {
		release([]*unsafe.Pointer{t.t.T})
	}
}

// Live returns how many tensors made by torchx are alive.
func Live() int { return live }

func release(cells []*unsafe.Pointer) {
	if len(cells) == 0 {
		return
	}
	handles := make([]C.Tensor, 0, len(cells))
	for _, c := range cells {
		if *c != nil {
			handles = append(handles, C.Tensor(*c))
			*c = nil
		}
	}
	if len(handles) > 0 {
		C.fc_free(&handles[0], C.int64_t(len(handles)))
		live -= len(handles)
	}
}

// adopt puts a fresh C tensor under the current scope.
func adopt(h C.Tensor) Tensor {
	cell := new(unsafe.Pointer)
	*cell = unsafe.Pointer(h)
	live++
	counts.Tensors++
	if n := len(scopes); n > 0 {
		scopes[n-1] = append(scopes[n-1], cell)
	}
	t := Tensor{gotorch.Tensor{T: cell}}
	if tracing != nil {
		tracing.look(t)
	}
	return t
}

// viaGotorch calls an operation that gotorch has, turning its string panic into *OpError. The tensor is taken away from Go's
// collector.
func viaGotorch(op string, f func() gotorch.Tensor, in ...Tensor) Tensor {
	must(op, in...)
	defer func() {
		if r := recover(); r != nil {
			panic(opError(op, fmt.Sprint(r), in))
		}
	}()
	g := f()
	runtime.SetFinalizer(g.T, nil)
	check(op, nil, in...)
	return adopt(C.Tensor(*g.T))
}

func opError(op, msg string, in []Tensor) *OpError {
	return &OpError{Op: op, Msg: msg, Shapes: list.Map(in, Tensor.describe)}
}

// check panics with the message of a failed call, naming the operation and the shapes.
func check(op string, msg *C.char, in ...Tensor) {
	if msg == nil {
		if tracing != nil {
			tracing.op, tracing.in = op, in
		}
		return
	}
	text := C.GoString(msg)
	C.fc_free_string(msg)
	panic(opError(op, text, in))
}

// made returns the tensor that call makes of in.
func made(op string, call func(out *C.Tensor) *C.char, in ...Tensor) Tensor {
	must(op, in...)
	var out C.Tensor
	check(op, call(&out), in...)
	return adopt(out)
}

// must guards against use after a scope's end before a handle reaches C++.
func must(op string, in ...Tensor) {
	for _, t := range in {
		if t.Nil() {
			panic(opError(op, "a tensor was freed: its scope has ended", in))
		}
	}
}
