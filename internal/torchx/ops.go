package torchx

// #cgo CFLAGS: -I${SRCDIR}
// #include <stdlib.h>
// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/wangkuiyi/gotorch"

	"fulcrum/internal/list"
)

// --- elementwise, with PyTorch's broadcasting. Where gotorch has the operation, it is gotorch's.

// Add returns a + b. (gotorch's refuses integers.)
func Add(a, b Tensor) Tensor {
	return made("add", func(out *C.Tensor) *C.char { return C.fc_add(a.c(), b.c(), out) }, a, b)
}

// Sub returns a - b.
func Sub(a, b Tensor) Tensor {
	return made("sub", func(out *C.Tensor) *C.char { return C.fc_sub(a.c(), b.c(), out) }, a, b)
}

// Mul returns a · b elementwise.
func Mul(a, b Tensor) Tensor {
	return viaGotorch("mul", func() gotorch.Tensor { return gotorch.Mul(a.t, b.t) }, a, b)
}

// Div returns a / b elementwise.
func Div(a, b Tensor) Tensor {
	return viaGotorch("div", func() gotorch.Tensor { return gotorch.Div(a.t, b.t) }, a, b)
}

// Sigmoid returns 1 / (1 + e^-x).
func Sigmoid(x Tensor) Tensor {
	return viaGotorch("sigmoid", func() gotorch.Tensor { return gotorch.Sigmoid(x.t) }, x)
}

func Tanh(x Tensor) Tensor {
	return viaGotorch("tanh", func() gotorch.Tensor { return gotorch.Tanh(x.t) }, x)
}

// ReLU returns max(x, 0).
func ReLU(x Tensor) Tensor {
	return viaGotorch("relu", func() gotorch.Tensor { return gotorch.Relu(x.t) }, x)
}

func unary(op string, x Tensor) Tensor {
	name := C.CString(op)
	defer C.free(unsafe.Pointer(name))
	return made(op, func(out *C.Tensor) *C.char { return C.fc_unary(name, x.c(), out) }, x)
}

// Exp returns e^x.
func Exp(x Tensor) Tensor { return unary("exp", x) }

func Log(x Tensor) Tensor { return unary("log", x) }

// Neg returns -x.
func Neg(x Tensor) Tensor { return unary("neg", x) }

func Sqrt(x Tensor) Tensor { return unary("sqrt", x) }

// Square returns x².
func Square(x Tensor) Tensor { return unary("square", x) }

// GELU returns x·Φ(x).
func GELU(x Tensor) Tensor { return unary("gelu", x) }

// SiLU returns x·sigmoid(x).
func SiLU(x Tensor) Tensor { return unary("silu", x) }

// Not inverts a bool tensor.
func Not(x Tensor) Tensor { return unary("logical_not", x) }

// AddScalar returns x + s.
func AddScalar(x Tensor, s float64) Tensor {
	return made("add", func(out *C.Tensor) *C.char { return C.fc_add_scalar(x.c(), C.double(s), out) }, x)
}

// Scale returns s·x.
func Scale(x Tensor, s float64) Tensor {
	return made("mul", func(out *C.Tensor) *C.char { return C.fc_mul_scalar(x.c(), C.double(s), out) }, x)
}

// Clamp limits x to [lo, hi].
func Clamp(x Tensor, lo, hi float64) Tensor {
	return made("clamp", func(out *C.Tensor) *C.char { return C.fc_clamp(x.c(), C.double(lo), C.double(hi), out) }, x)
}

// ClampMin limits x from below.
func ClampMin(x Tensor, lo float64) Tensor { return Clamp(x, lo, math.NaN()) }

// Minimum returns the smaller of a and b, elementwise.
func Minimum(a, b Tensor) Tensor {
	return made("minimum", func(out *C.Tensor) *C.char { return C.fc_minimum(a.c(), b.c(), out) }, a, b)
}

// Maximum returns the larger of a and b, elementwise.
func Maximum(a, b Tensor) Tensor {
	return made("maximum", func(out *C.Tensor) *C.char { return C.fc_maximum(a.c(), b.c(), out) }, a, b)
}

// Compare returns the bool tensor x op s; op is eq, ne, lt, le, gt or ge.
func Compare(x Tensor, op string, s float64) Tensor {
	name := C.CString(op)
	defer C.free(unsafe.Pointer(name))
	return made(op, func(out *C.Tensor) *C.char { return C.fc_compare(name, x.c(), C.double(s), out) }, x)
}

// Where picks from a where cond is true, else from b.
func Where(cond, a, b Tensor) Tensor {
	return made("where", func(out *C.Tensor) *C.char { return C.fc_where(cond.c(), a.c(), b.c(), out) }, cond, a, b)
}

// MaskedFill returns x with v where mask (bool) is true.
func MaskedFill(x, mask Tensor, v float64) Tensor {
	return made("masked_fill", func(out *C.Tensor) *C.char { return C.fc_masked_fill(x.c(), mask.c(), C.double(v), out) }, x, mask)
}

// --- products

// MatMul multiplies matrices, batched over leading dimensions (torch.matmul).
func MatMul(a, b Tensor) Tensor {
	return made("matmul", func(out *C.Tensor) *C.char { return C.fc_matmul(a.c(), b.c(), out) }, a, b)
}

// Linear returns x·weightᵀ + bias over the last dimension; bias may be no tensor. The gradients of weight
// and bias, where they are parameters, go straight into their buffer. Frozen weights may have another float
// type than x: bfloat16 ones under float32 rows cost half the memory, and half the time for a few rows.
func Linear(x, weight, bias Tensor) Tensor { return linear(x, weight, bias, false) }

// LinearT returns x·weight over the last dimension, as Linear does.
func LinearT(x, weight Tensor) Tensor { return linear(x, weight, Tensor{}, true) }

func linear(x, weight, bias Tensor, transposed bool) Tensor {
	must("linear", x, weight)
	var out C.Tensor
	check("linear", C.fc_linear(x.c(), weight.c(), bias.c(), C.bool(transposed), &out), x, weight, bias)
	return adopt(out)
}

// --- reductions

// Sum adds over dims (all when none are given).
func Sum(x Tensor, dims ...int) Tensor { return reduce("sum", x, false, dims) }

// SumKeep adds over dims and keeps them with size 1.
func SumKeep(x Tensor, dims ...int) Tensor { return reduce("sum", x, true, dims) }

// Mean averages over dims (all when none are given).
func Mean(x Tensor, dims ...int) Tensor { return reduce("mean", x, false, dims) }

func reduce(op string, x Tensor, keep bool, dims []int) Tensor {
	d, n := cshape(dims)
	return made(op, func(out *C.Tensor) *C.char {
		if op == "sum" {
			return C.fc_sum(x.c(), d, n, C.bool(keep), out)
		}
		return C.fc_mean(x.c(), d, n, C.bool(keep), out)
	}, x)
}

// LogSumExp returns log Σ e^x over dim.
func LogSumExp(x Tensor, dim int, keep bool) Tensor {
	return made("logsumexp", func(out *C.Tensor) *C.char { return C.fc_logsumexp(x.c(), C.int64_t(dim), C.bool(keep), out) }, x)
}

// Softmax normalises e^x over dim.
func Softmax(x Tensor, dim int) Tensor {
	return made("softmax", func(out *C.Tensor) *C.char { return C.fc_softmax(x.c(), C.int64_t(dim), out) }, x)
}

// LogSoftmax is the logarithm of Softmax, computed stably.
func LogSoftmax(x Tensor, dim int) Tensor {
	return made("log_softmax", func(out *C.Tensor) *C.char { return C.fc_log_softmax(x.c(), C.int64_t(dim), out) }, x)
}

// ArgMax returns the position of the largest value over dim (int64; the first on ties).
func ArgMax(x Tensor, dim int) Tensor {
	return made("argmax", func(out *C.Tensor) *C.char { return C.fc_argmax(x.c(), C.int64_t(dim), out) }, x)
}

// TopK returns the k largest values over dim, descending, and their positions. Ties come in libtorch's order.
func TopK(x Tensor, k, dim int) (values, indices Tensor) {
	must("topk", x)
	var v, i C.Tensor
	check("topk", C.fc_topk(x.c(), C.int64_t(k), C.int64_t(dim), &v, &i), x)
	return adopt(v), adopt(i)
}

// LayerNorm normalises the last dimension and applies weight and bias (Ba et al. 2016).
func LayerNorm(x, weight, bias Tensor, eps float64) Tensor {
	return made("layer_norm", func(out *C.Tensor) *C.char {
		return C.fc_layer_norm(x.c(), weight.c(), bias.c(), C.double(eps), out)
	}, x, weight, bias)
}

// Normalize returns x / max(|x|₂, 1e-12) over the last dimension.
func Normalize(x Tensor) Tensor {
	return made("normalize", func(out *C.Tensor) *C.char { return C.fc_normalize(x.c(), 1e-12, out) }, x)
}

// AllFinite reports whether x has no NaN and no infinity. sync
func AllFinite(x Tensor) bool {
	must("isfinite", x)
	var ok C.bool
	counts.ReadBacks++
	check("isfinite", C.fc_all_finite(x.c(), &ok), x)
	return bool(ok)
}

// --- indexing and shape

// Gather returns out[i][j] = x[i][index[i][j]] for dim 1, and likewise for other dims.
func Gather(x Tensor, dim int, index Tensor) Tensor {
	return made("gather", func(out *C.Tensor) *C.char { return C.fc_gather(x.c(), C.int64_t(dim), index.c(), out) }, x, index)
}

// ScatterValue returns x with v written at index along dim.
func ScatterValue(x Tensor, dim int, index Tensor, v float64) Tensor {
	return made("scatter", func(out *C.Tensor) *C.char {
		return C.fc_scatter_value(x.c(), C.int64_t(dim), index.c(), C.double(v), out)
	}, x, index)
}

// IndexSelect returns the slices of x along dim that index (int64, 1-D) names.
func IndexSelect(x Tensor, dim int, index Tensor) Tensor {
	return made("index_select", func(out *C.Tensor) *C.char {
		return C.fc_index_select(x.c(), C.int64_t(dim), index.c(), out)
	}, x, index)
}

// Embedding returns the rows of table [N, D] that index (int64, any shape) names: [..., D]. Indices are
// not checked on CUDA. Its gradient is faster than IndexSelect's when rows repeat.
func Embedding(table, index Tensor) Tensor {
	return made("embedding", func(out *C.Tensor) *C.char { return C.fc_embedding(table.c(), index.c(), out) }, table, index)
}

func handles(op string, xs []Tensor) (*C.Tensor, C.int64_t) {
	must(op, xs...)
	if len(xs) == 0 {
		panic(&OpError{Op: op, Msg: "no tensors given"})
	}
	h := list.Map(xs, Tensor.c)
	return &h[0], C.int64_t(len(h))
}

// Cat joins tensors along dim.
func Cat(dim int, xs ...Tensor) Tensor {
	h, n := handles("cat", xs)
	return made("cat", func(out *C.Tensor) *C.char { return C.fc_cat(h, n, C.int64_t(dim), out) }, xs...)
}

// Stack joins tensors along a new dim.
func Stack(dim int, xs ...Tensor) Tensor {
	h, n := handles("stack", xs)
	return made("stack", func(out *C.Tensor) *C.char { return C.fc_stack(h, n, C.int64_t(dim), out) }, xs...)
}

// Narrow returns the view x[start : start+length] along dim.
func Narrow(x Tensor, dim, start, length int) Tensor {
	return made("narrow", func(out *C.Tensor) *C.char {
		return C.fc_narrow(x.c(), C.int64_t(dim), C.int64_t(start), C.int64_t(length), out)
	}, x)
}

// Split returns the first entries of x along dim, and the others.
func Split(x Tensor, dim, first int) (Tensor, Tensor) {
	must("split", x)
	var a, b C.Tensor
	check("split", C.fc_split(x.c(), C.int64_t(dim), C.int64_t(first), &a, &b), x)
	return adopt(a), adopt(b)
}

// Reshape gives x another shape with as many elements; -1 is inferred.
func Reshape(x Tensor, shape ...int) Tensor {
	s, d := cshape(shape)
	return made("reshape", func(out *C.Tensor) *C.char { return C.fc_reshape(x.c(), s, d, out) }, x)
}

// Expand repeats dimensions of size 1 without copying; -1 keeps a size.
func Expand(x Tensor, shape ...int) Tensor {
	s, d := cshape(shape)
	return made("expand", func(out *C.Tensor) *C.char { return C.fc_expand(x.c(), s, d, out) }, x)
}

// Transpose swaps two dimensions.
func Transpose(x Tensor, a, b int) Tensor {
	return made("transpose", func(out *C.Tensor) *C.char { return C.fc_transpose(x.c(), C.int64_t(a), C.int64_t(b), out) }, x)
}

// Unsqueeze inserts a dimension of size 1.
func Unsqueeze(x Tensor, dim int) Tensor {
	return made("unsqueeze", func(out *C.Tensor) *C.char { return C.fc_unsqueeze(x.c(), C.int64_t(dim), out) }, x)
}

// Squeeze drops a dimension of size 1.
func Squeeze(x Tensor, dim int) Tensor {
	return made("squeeze", func(out *C.Tensor) *C.char { return C.fc_squeeze(x.c(), C.int64_t(dim), out) }, x)
}

// Contiguous returns x in row-major order.
func Contiguous(x Tensor) Tensor {
	return made("contiguous", func(out *C.Tensor) *C.char { return C.fc_contiguous(x.c(), out) }, x)
}

// Picked is what PickLogp makes of rows of scores, each [B, G, T].
type Picked struct {
	LogP    Tensor // log π of the action
	Entropy Tensor // of the step's distribution in nats, without gradient
	KL      Tensor // KL(π ‖ reference) of the step's distribution in nats; no tensor without a reference
}

// PickLogp turns scores logits [B, R, K] into log π of the actions [B, G, T] (int64 positions in the row).
// R is 1 + (T-1)·G (all candidates share the row of the first step) or T·G, step by step. What a candidate
// has taken before has the logit taken. reference, which may be no tensor, holds the
// log-probabilities [B, G, T, K] that the KL is taken from. Of float32 it is one fused pass forward and one backward.
func PickLogp(logits, actions Tensor, taken float64, reference Tensor) Picked {
	must("pick_logp", logits, actions)
	var l, e, kl C.Tensor
	check("pick_logp", C.fc_pick_logp(logits.c(), actions.c(), C.double(taken), reference.c(), &l, &e, &kl), logits, actions)
	p := Picked{LogP: adopt(l), Entropy: adopt(e)}
	if kl != nil {
		p.KL = adopt(kl)
	}
	return p
}
