package torchx

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"fulcrum/internal/rng"
)

// onCUDA skips the test where there is no device.
func onCUDA(t testing.TB) {
	t.Helper()
	if !CUDAAvailable() {
		t.Skip("no CUDA device")
	}
}

// kernelCase is an operation with inputs that get gradients; f takes them and what moves its other tensors to their device.
type kernelCase struct {
	name   string
	shapes [][]int
	f      func(in []Tensor, on func(Tensor) Tensor) []Tensor
}

// kernelCases are the operations that have CUDA kernels, in sizes with and without a rest to 16 bytes.
func kernelCases() []kernelCase {
	var cases []kernelCase
	add := func(name string, f func(in []Tensor, on func(Tensor) Tensor) []Tensor, shapes ...[]int) {
		cases = append(cases, kernelCase{name: fmt.Sprint(name, shapes), shapes: shapes, f: f})
	}
	for _, x := range [][]int{{5, 7}, {3, 1536}, {300, 257}, {2, 3, 64}, {1, 9000}} {
		w := x[len(x)-1:]
		add("rms_norm", func(in []Tensor, _ func(Tensor) Tensor) []Tensor { return []Tensor{RMSNorm(in[0], in[1], 1e-6)} }, x, w)
		add("add_rms_norm", func(in []Tensor, _ func(Tensor) Tensor) []Tensor {
			total, normed := AddRMSNorm(in[0], in[1], in[2], 1e-6)
			return []Tensor{total, normed}
		}, x, x, w)
	}
	add("add_rms_norm, the norm alone", func(in []Tensor, _ func(Tensor) Tensor) []Tensor {
		_, normed := AddRMSNorm(in[0], in[1], in[2], 1e-6)
		return []Tensor{normed}
	}, []int{33, 40}, []int{33, 40}, []int{40})
	for _, x := range [][]int{{1, 1}, {17, 1001}, {64, 896}} {
		add("swiglu", func(in []Tensor, _ func(Tensor) Tensor) []Tensor { return []Tensor{SwiGLU(in[0], in[1])} }, x, x)
	}
	for _, x := range [][]int{{1, 1, 2}, {5, 3, 10}, {7, 2, 16}, {33, 12, 128}} {
		angles := operands("angles", []int{x[0], x[2] / 2})[0]
		add("rope", func(in []Tensor, on func(Tensor) Tensor) []Tensor {
			cos := on(From(mapped(angles, math.Cos), x[0], x[2]/2).To(Float32))
			sin := on(From(mapped(angles, math.Sin), x[0], x[2]/2).To(Float32))
			return []Tensor{Rope(in[0], cos, sin)}
		}, x)
	}
	for _, x := range [][]int{{1, 2}, {17, 2002}, {64, 1792}} {
		add("swiglu_pair", func(in []Tensor, _ func(Tensor) Tensor) []Tensor { return []Tensor{SwiGLUPair(in[0])} }, x)
	}
	for _, x := range [][]int{{1, 1, 1, 2}, {5, 3, 1, 10}, {7, 4, 2, 16}, {33, 12, 2, 128}} {
		n, hq, hk, d := x[0], x[1], x[2], x[3]
		angles, rows := operands("angles", []int{n, d / 2})[0], make([]int64, n)
		for i := range rows {
			rows[i] = int64((i*2 + 1) % (2*n + 1))
		}
		add(fmt.Sprint("rope_heads ", x), func(in []Tensor, on func(Tensor) Tensor) []Tensor {
			cos := on(From(mapped(angles, math.Cos), n, d/2).To(Float32))
			sin := on(From(mapped(angles, math.Sin), n, d/2).To(Float32))
			q, k, v := RopeHeads(in[0], cos, sin, hq, hk)
			end := NoGrad()
			kCache, vCache := FullLike(in[0], 0, in[0].DType(), 2*n+1, hk, d), FullLike(in[0], 0, in[0].DType(), 2*n+1, hk, d)
			again := RopeHeadsInto(in[0], cos, sin, hq, kCache, vCache, on(From(rows, n)))
			end()
			return []Tensor{q, k, v, again, kCache, vCache}
		}, []int{n, (hq + 2*hk) * d})
	}
	for _, c := range []struct {
		n, width, vocabulary int
		temperature          float64
	}{{1, 3, 5, 1}, {7, 16, 1030, 0.8}, {33, 24, 1537, 1}, {40, 8, 4096, 1.3}} {
		targets := make([]int64, c.n)
		r := rng.New(5, "targets")
		for i := range targets {
			targets[i] = int64(r.IntN(c.vocabulary))
		}
		targets[0] = int64(c.vocabulary - 1)
		add("token_logp", func(in []Tensor, on func(Tensor) Tensor) []Tensor {
			logp, entropy := TokenLogp(in[0], in[1], on(From(targets, c.n)), c.temperature)
			return []Tensor{logp, entropy}
		}, []int{c.n, c.width}, []int{c.vocabulary, c.width})
		add("token_logp without entropy", func(in []Tensor, on func(Tensor) Tensor) []Tensor {
			logp, _ := TokenLogp(in[0], in[1], on(From(targets, c.n)), c.temperature)
			return []Tensor{logp}
		}, []int{c.n, c.width}, []int{c.vocabulary, c.width})
	}
	layer := [][]int{{50, 24}, {40, 24}, {8, 24}, {40, 8}, {40}}
	add("lora_linear", func(in []Tensor, _ func(Tensor) Tensor) []Tensor {
		return []Tensor{LoRALinear(in[0], in[1], Tensor{}, in[2], in[3], 2)}
	}, layer[:4]...)
	add("lora_linear", func(in []Tensor, _ func(Tensor) Tensor) []Tensor {
		return []Tensor{LoRALinear(in[0], in[1], in[4], in[2], in[3], 2)}
	}, layer...)
	return append(cases, poolCases()...)
}

// device computes a case's outputs and gradients twice over, so that the second backward pass adds to the first's gradients.
// Operands and the weights of outputs are rounded to rounding and computed in dtype.
func (c kernelCase) device(device string, rounding, dtype DType) (out, grads [][]float64) {
	defer Scope()()
	on := func(x Tensor) Tensor { return x.ToDevice(device) }
	var in []Tensor
	for i, v := range operands(c.name, c.shapes...) {
		in = append(in, RequireGrad(on(From(v, c.shapes[i]...).To(rounding).To(dtype))))
	}
	for pass := range 2 {
		end := Scope()
		if device != "cpu" { // memory that the operation is given next
			for _, x := range in {
				for _, t := range []DType{Float32, dtype} {
					FullLike(x, math.NaN(), t, x.Shape()...)
					FullLike(x, math.NaN(), t, x.Shape()[:1]...)
				}
			}
			end()
			end = Scope()
		}
		total := on(Zeros().To(Float64))
		for i, y := range c.f(in, on) {
			if pass == 0 {
				out = append(out, y.Floats())
			}
			w := on(From(operands(fmt.Sprint("weights ", i), y.Shape())[0], y.Shape()...).To(rounding).To(Float64))
			total = Add(total, Sum(Mul(y.To(Float64), w)))
		}
		Backward(total)
		end()
	}
	for _, x := range in {
		grads = append(grads, Grad(x).Floats())
	}
	return out, grads
}

// worst returns the largest |got-want| / (|want| + rms of want) and where it is; NaN is infinitely wrong.
func worst(got, want []float64) (at int, excess float64) {
	var squares float64
	for _, x := range want {
		squares += x * x
	}
	rms := math.Sqrt(squares/float64(len(want))) + 1e-30
	for i := range want {
		e := math.Abs(got[i]-want[i]) / (math.Abs(want[i]) + rms)
		if e != e {
			e = math.Inf(1)
		}
		if e > excess {
			at, excess = i, e
		}
	}
	return at, excess
}

func report(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	if at, excess := worst(got, want); excess > tol {
		t.Errorf("%s: element %d of %d is %v, want %v: %.3g of its size, tolerance %g", what, at, len(want), got[at], want[at], excess, tol)
	}
}

// TestCUDAKernels compares each kernel, forward and backward, with float64 on the CPU, and with itself: the same bits again.
func TestCUDAKernels(t *testing.T) {
	onCUDA(t)
	scoped(t)
	for _, c := range kernelCases() {
		for _, as := range []struct {
			dtype DType
			tol   float64 // of a value's size: 2^-8 for bfloat16 and 2^-11 for float16, a few roundings
		}{{Float32, 5e-5}, {BFloat16, 0.02}, {Float16, 0.004}} {
			t.Run(fmt.Sprintf("%s %v", c.name, as.dtype), func(t *testing.T) {
				out, grads := c.device("cuda:0", as.dtype, as.dtype)
				want, wantGrads := c.device("cpu", as.dtype, Float64)
				again, againGrads := c.device("cuda:0", as.dtype, as.dtype)
				for i := range want {
					report(t, fmt.Sprint("output ", i), out[i], want[i], as.tol)
				}
				for i := range wantGrads {
					report(t, fmt.Sprint("gradient of input ", i), grads[i], wantGrads[i], 2*as.tol)
				}
				same := func(a, b []float64) bool { return slices.Equal(a, b) }
				if !slices.EqualFunc(out, again, same) || !slices.EqualFunc(grads, againGrads, same) {
					t.Error("other bits the second time")
				}
			})
		}
	}
}

// TestCUDALoRAOfFloat32 has rows and weights in bfloat16 and adapters in float32, as training has.
func TestCUDALoRAOfFloat32(t *testing.T) {
	onCUDA(t)
	scoped(t)
	shapes := [][]int{{50, 24}, {40, 24}, {8, 24}, {40, 8}}
	run := func(device string, dtype, adapters DType) (out, dx, da, db []float64) {
		defer Scope()()
		var in []Tensor
		for i, v := range operands("lora", shapes...) {
			in = append(in, From(v, shapes[i]...).To(BFloat16).To(dtype).ToDevice(device))
		}
		x, a, b := RequireGrad(in[0]), RequireGrad(in[2].To(adapters)), RequireGrad(in[3].To(adapters))
		var y Tensor
		for range 2 {
			y = LoRALinear(x, in[1], Tensor{}, a, b, 2)
			backward(y, FullLike(y, 0.5, dtype, 50, 40), 0)
		}
		return y.Floats(), Grad(x).Floats(), Grad(a).Floats(), Grad(b).Floats()
	}
	y, dx, da, db := run("cuda:0", BFloat16, Float32)
	wantY, wantX, wantA, wantB := run("cpu", Float64, Float64)
	report(t, "output", y, wantY, 0.02)
	report(t, "gradient of x", dx, wantX, 0.02)
	report(t, "gradient of A", da, wantA, 0.02)
	report(t, "gradient of B", db, wantB, 0.02)
}

// TestCUDATokenKL compares the divergence with float64, and takes more rows than one chunk of logits has.
func TestCUDATokenKL(t *testing.T) {
	onCUDA(t)
	scoped(t)
	for _, vocabulary := range []int{5, 1030, 4096} {
		shapes := [][]int{{33, 16}, {vocabulary, 16}, {33, 16}, {vocabulary, 16}}
		for dtype, tol := range map[DType]float64{Float32: 1e-4, BFloat16: 1e-4, Float16: 1e-4} { // logits are float32 in each
			run := func(device string, as DType) []float64 {
				var in []Tensor
				for i, v := range operands("kl", shapes...) {
					in = append(in, From(v, shapes[i]...).To(dtype).To(as).ToDevice(device))
				}
				return TokenKL(in[0], in[1], in[2], in[3]).Floats()
			}
			report(t, fmt.Sprint("KL of ", vocabulary, " ", dtype), run("cuda:0", dtype), run("cpu", Float64), tol)
		}
	}
}

// TestCUDATokenLogpInChunks takes more rows than one chunk of logits has and compares with the rows one by one half.
func TestCUDATokenLogpInChunks(t *testing.T) {
	onCUDA(t)
	scoped(t)
	const n, width, vocabulary = 4000, 16, 151936 // a chunk has 1766
	v := operands("chunks", []int{n, width}, []int{vocabulary, width})
	hidden, weight := From(v[0], n, width).ToDevice("cuda:0").To(BFloat16), From(v[1], vocabulary, width).ToDevice("cuda:0").To(BFloat16)
	targets := make([]int64, n)
	for i := range targets {
		targets[i] = int64(i * 37 % vocabulary)
	}
	run := func(step int) (logp, grad, gradWeight []float64) {
		defer Scope()()
		w := RequireGrad(Detach(weight))
		for i := 0; i < n; i += step {
			h := RequireGrad(Narrow(hidden, 0, i, step))
			l, e := TokenLogp(h, w, From(targets[i:i+step], step).ToDevice("cuda:0"), 1)
			Backward(Sum(Add(l, e)))
			logp, grad = append(logp, l.Floats()...), append(grad, Grad(h).Floats()...)
		}
		return logp, grad, Grad(w).Floats()
	}
	logp, grad, gradWeight := run(n)
	wantLogp, wantGrad, wantWeight := run(n / 4)
	report(t, "log π", logp, wantLogp, 1e-5)
	report(t, "gradient of hidden", grad, wantGrad, 0.01)
	report(t, "gradient of weight", gradWeight, wantWeight, 0.03) // the parts are added in bfloat16
}

// TestCUDATargetOutsideIsNaN: a check would wait for the device, so that the loss tells.
func TestCUDATargetOutsideIsNaN(t *testing.T) {
	onCUDA(t)
	scoped(t)
	hidden, weight := Zeros(2, 4).ToDevice("cuda:0"), Zeros(6, 4).ToDevice("cuda:0")
	logp, _ := TokenLogp(hidden, weight, From([]int64{6, 5}, 2).ToDevice("cuda:0"), 1)
	if got := logp.Floats(); got[0] == got[0] || math.Abs(got[1]+math.Log(6)) > 1e-6 {
		t.Errorf("log π of a token outside of the vocabulary and of the last: %v, want NaN and %v", got, -math.Log(6))
	}
}

// TestCUDANormalize compares unit rows with float64 on the CPU; one row is shorter than the least norm.
func TestCUDANormalize(t *testing.T) {
	onCUDA(t)
	scoped(t)
	for _, shape := range [][]int{{3, 5}, {2, 7, 64}, {5, 769}, {4, 3000}} {
		v := operands("normalize", shape)[0]
		for i := range shape[len(shape)-1] {
			v[i] = 1e-14 * v[i]
		}
		run := func(device string, dtype DType) (y, dx []float64) {
			defer Scope()()
			x := RequireGrad(From(v, shape...).To(Float32).To(dtype).ToDevice(device))
			out := Normalize(x)
			backward(out, From(operands("dy", shape)[0], shape...).To(Float32).To(dtype).ToDevice(device), 0)
			return out.Floats(), Grad(x).Floats()
		}
		y, dx := run("cuda:0", Float32)
		wantY, wantX := run("cpu", Float64)
		k := shape[len(shape)-1]
		report(t, fmt.Sprint("rows of ", shape), y, wantY, 2e-6)
		report(t, fmt.Sprint("gradient of the short row of ", shape), dx[:k], wantX[:k], 2e-6)
		report(t, fmt.Sprint("gradient of the others of ", shape), dx[k:], wantX[k:], 1e-5)
	}
}

// TestCUDAPickLogP compares the pointer's kernel with float64 on the CPU.
func TestCUDAPickLogP(t *testing.T) {
	onCUDA(t)
	scoped(t)
	for _, c := range []pickCase{
		newPickCase(1, 1, 1, 3, true), newPickCase(2, 3, 2, 5, true), newPickCase(3, 40, 4, 64, true), newPickCase(1, 4, 2, 131, true),
		newPickCase(2, 2, 3, 11, false),
	} {
		for _, withKL := range []bool{false, true} {
			run := func(device string, dtype DType) [][]float64 {
				defer Scope()()
				move := func(x []float64, shape ...int) Tensor {
					return From(x, shape...).To(Float32).To(dtype).ToDevice(device)
				}
				x, ref := RequireGrad(move(c.logits, c.b, c.r, c.k)), Tensor{}
				if withKL {
					ref = move(c.ref, c.b, c.g, c.t, c.k)
				}
				p := PickLogp(x, From(c.actions, c.b, c.g, c.t).ToDevice(device), -40, ref)
				loss := Sum(Mul(p.LogP, move(c.weight, c.b, c.g, c.t)))
				out := [][]float64{p.LogP.Floats(), p.Entropy.Floats()}
				if withKL {
					loss = Add(loss, Sum(Mul(p.KL, move(c.weightKL, c.b, c.g, c.t))))
					out = append(out, p.KL.Floats())
				}
				Backward(loss)
				return append(out, Grad(x).Floats())
			}
			got, want := run("cuda:0", Float32), run("cpu", Float64)
			for i := range want {
				report(t, fmt.Sprintf("%d of B %d, G %d, T %d, K %d, R %d, KL %v", i, c.b, c.g, c.t, c.k, c.r, withKL), got[i], want[i], 3e-5)
			}
		}
	}
}
