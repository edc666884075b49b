package torchx

import (
	"math"
	"strings"
	"testing"
)

// TestTrace: the operation that made a NaN or an infinity is named, with the line that called it or its shapes.
func TestTrace(t *testing.T) {
	param := func(x ...float32) Tensor { return RequireGrad(From(x, len(x))) }
	nan := float32(math.NaN())
	for _, tc := range []struct {
		name string
		f    func()
		want string // "" = nothing is wrong
	}{
		{"all finite", func() { Backward(Sum(Exp(param(1, 2)))) }, ""},
		{"the first of several", func() { Backward(Sum(Log(Sub(Exp(param(1, 1000)), Exp(param(1, 999)))))) },
			"exp([2]float32) made the first number"},
		{"NaN from a logarithm", func() { Backward(Mean(Scale(Log(param(1, -1)), 2))) }, "log([2]float32) made the first number"},
		{"a weight", func() { Backward(Sum(Exp(param(1, nan)))) }, "given a number that is not finite"},
		{"a mask's infinity on the side", func() {
			x := param(1, 2)
			mask := FullLike(x, math.Inf(-1), Float32, 2)
			Backward(Sum(Softmax(Add(Narrow(x, 0, 0, 1), Narrow(mask, 0, 0, 1)), 0)))
		}, "softmax([1]float32) made the first number"},
		{"an infinity that the loss does not see", func() {
			_ = Exp(From([]float32{1000}, 1))
			Backward(Sum(Exp(param(1, 2))))
		}, ""},
		{"a gradient alone", func() { Backward(Sum(Sqrt(Scale(param(0, 4), 3)))) }, "SqrtBackward0([2]) made the first gradient"},
		{"behind a checkpoint", func() {
			x := Scale(param(1, 1000), 1)
			Backward(Sum(Checkpoint(x, func(x Tensor) Tensor { return Exp(x) })))
		}, "exp([2]float32) made the first number"},
		{"a gradient within a checkpoint", func() {
			x := Scale(param(0, 1), 1)
			Backward(Sum(Checkpoint(x, func(x Tensor) Tensor { return Sqrt(x) })))
		}, "SqrtBackward0([2]) made the first gradient"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer Scope()()
			before := Live()
			origin, err := Trace(func() error {
				defer Scope()()
				tc.f()
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if Live() != before || Tracing() {
				t.Errorf("%d tensors left, tracing %v", Live()-before, Tracing())
			}
			switch {
			case tc.want == "" && origin != nil:
				t.Errorf("origin %v, want none", origin)
			case tc.want != "" && (origin == nil || !strings.Contains(origin.String(), tc.want)):
				t.Errorf("origin %v, want %q", origin, tc.want)
			}
		})
	}
}
