package torchx

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/testkit/golden"
)

// operands draws tensors' values: deterministic, of standard deviation 1.
func operands(name string, shapes ...[]int) [][]float64 {
	r := rng.New(11, name)
	out := make([][]float64, len(shapes))
	for i, shape := range shapes {
		for range numel(shape) {
			out[i] = append(out[i], r.NormFloat64())
		}
	}
	return out
}

// gradients returns Σ weights·f(inputs) over all outputs, the outputs, and the gradient of every input.
func gradients(dtype DType, values [][]float64, shapes [][]int, f func(in []Tensor) []Tensor) (sum float64, out, grads [][]float64) {
	defer Scope()()
	in := make([]Tensor, len(values))
	for i, v := range values {
		in[i] = RequireGrad(From(v, shapes[i]...).To(dtype))
	}
	total := Zeros().To(Float64)
	for i, y := range f(in) {
		out = append(out, y.Floats())
		w := operands(fmt.Sprint("weights ", i), y.Shape())[0]
		total = Add(total, Sum(Mul(y.To(Float64), From(w, y.Shape()...))))
	}
	Backward(total)
	for _, x := range in {
		grads = append(grads, Grad(x).Floats())
	}
	return total.Item(), out, grads
}

// checkGradients compares the float64 gradient of f with central differences, and float32 with float64.
func checkGradients(t *testing.T, shapes [][]int, tol float64, f func(in []Tensor) []Tensor) {
	t.Helper()
	values := operands(t.Name(), shapes...)
	_, out, grads := gradients(Float64, values, shapes, f)
	const h = 1e-5
	r := rng.New(3, t.Name())
	for i, v := range values {
		for range min(len(v), 12) { // of every input a few elements
			j := r.IntN(len(v))
			at := v[j]
			v[j] = at + h
			up, _, _ := gradients(Float64, values, shapes, f)
			v[j] = at - h
			down, _, _ := gradients(Float64, values, shapes, f)
			v[j] = at
			if want := (up - down) / (2 * h); math.Abs(grads[i][j]-want) > 1e-6*max(1, math.Abs(want)) {
				t.Errorf("input %d, element %d: gradient %v, differences say %v", i, j, grads[i][j], want)
			}
		}
	}
	_, out32, grads32 := gradients(Float32, values, shapes, f)
	for i := range out {
		golden.Close(t, out32[i], out[i], tol)
	}
	for i := range grads {
		golden.Close(t, grads32[i], grads[i], 4*tol)
	}
}

func TestRMSNorm(t *testing.T) {
	scoped(t)
	x := []float64{3, -4, 12, 0}
	root := math.Sqrt(169.0/4 + 0.25)
	golden.Close(t, RMSNorm(From(x, 1, 4), From([]float64{1, 2, 3, 4}, 4), 0.25).Floats(), []float64{3 / root, -8 / root, 36 / root, 0},
		1e-14)
	for _, width := range []int{5, 64, 83} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			checkGradients(t, [][]int{{3, 13, width}, {width}}, 2e-5,
				func(in []Tensor) []Tensor { return []Tensor{RMSNorm(in[0], in[1], 1e-6)} })
		})
		t.Run(fmt.Sprint("added ", width), func(t *testing.T) {
			checkGradients(t, [][]int{{40, width}, {40, width}, {width}}, 2e-5, func(in []Tensor) []Tensor {
				total, normed := AddRMSNorm(in[0], in[1], in[2], 1e-6)
				return []Tensor{total, normed}
			})
		})
	}
}

func TestAddRMSNormWithOneUse(t *testing.T) {
	scoped(t)
	shapes := [][]int{{4, 9}, {4, 9}, {9}}
	for name, pick := range map[string]func(total, normed Tensor) Tensor{
		"the sum alone":  func(total, _ Tensor) Tensor { return total },
		"the norm alone": func(_, normed Tensor) Tensor { return normed },
	} {
		t.Run(name, func(t *testing.T) {
			defer Scope()()
			values := operands("one use", shapes...)
			run := func(dtype DType) (a, b []float64) {
				x, d, w := RequireGrad(From(values[0], 4, 9).To(dtype)), RequireGrad(From(values[1], 4, 9).To(dtype)),
					RequireGrad(From(values[2], 9).To(dtype))
				Backward(Sum(Square(pick(AddRMSNorm(x, d, w, 1e-6)))))
				return Grad(x).Floats(), Grad(d).Floats()
			}
			x32, d32 := run(Float32)
			x64, d64 := run(Float64)
			golden.Close(t, x32, x64, 1e-5)
			golden.Close(t, d32, d64, 1e-5)
			golden.Close(t, x64, d64, 0)
		})
	}
}

func TestSwiGLU(t *testing.T) {
	scoped(t)
	golden.Close(t, SwiGLU(From([]float32{0, 2, -100, 100}, 4), From([]float32{5, 3, 7, 1}, 4)).Floats(),
		[]float64{0, 6 / (1 + math.Exp(-2)), 0, 100}, 1e-5)
	for _, width := range []int{3, 8, 129} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			checkGradients(t, [][]int{{7, width}, {7, width}}, 1e-5, func(in []Tensor) []Tensor { return []Tensor{SwiGLU(in[0], in[1])} })
		})
	}
}

func TestRope(t *testing.T) {
	scoped(t)
	quarter := Rope(From([]float64{1, 2, 3, 4}, 1, 1, 4), From([]float64{0, 1}, 1, 2), From([]float64{1, 0}, 1, 2))
	golden.Close(t, quarter.Floats(), []float64{-3, 2, 1, 4}, 0) // the first pair by 90 degrees, the second not at all
	for _, d := range []int{4, 16, 40} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			angle := operands("angles", []int{35, d / 2})[0]
			checkGradients(t, [][]int{{35, 3, d}}, 1e-5, func(in []Tensor) []Tensor {
				of := func(f func(float64) float64) Tensor { return From(mapped(angle, f), 35, d/2).To(in[0].DType()) }
				return []Tensor{Rope(in[0], of(math.Cos), of(math.Sin))}
			})
		})
	}
}

// mapped returns f of every number.
func mapped(x []float64, f func(float64) float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = f(v)
	}
	return y
}

// plainAttend is attention by loops: q [n, hq, d], k and v [m, hk, d], bias of a head and a distance.
func plainAttend(q, k, v []float64, hq, hk, d int, spans []Span, scale float64, bias func(h, distance int) float64) []float64 {
	out := make([]float64, len(q))
	for _, s := range spans {
		for i := range s.QLen {
			var keys []int
			for j := range s.PrefixLen {
				keys = append(keys, s.Prefix+j)
			}
			for j := range s.OwnLen {
				if !s.Causal || j <= s.OwnLen-s.QLen+i {
					keys = append(keys, s.Own+j)
				}
			}
			for h := range hq {
				at, kh := ((s.Q+i)*hq+h)*d, h*hk/hq
				p, total := make([]float64, len(keys)), 0.0
				for n, key := range keys {
					z := 0.0
					for j := range d {
						z += q[at+j] * k[(key*hk+kh)*d+j]
					}
					p[n] = math.Exp(scale*z + bias(h, n-(s.PrefixLen+s.OwnLen-s.QLen+i)))
					total += p[n]
				}
				for n, key := range keys {
					for j := range d {
						out[at+j] += p[n] / total * v[(key*hk+kh)*d+j]
					}
				}
			}
		}
	}
	return out
}

type attendCase struct {
	name      string
	n, m      int // rows of q, of k and v
	hq, hk, d int
	spans     []Span
}

func attendCases() []attendCase {
	return []attendCase{
		{"one causal sequence", 7, 7, 4, 2, 8, []Span{{QLen: 7, OwnLen: 7, Causal: true}}},
		{"more rows than a block", 130, 130, 2, 1, 16, []Span{{QLen: 130, OwnLen: 130, Causal: true}}},
		{"a prompt shared by two completions", 12, 12, 4, 2, 20, []Span{
			{QLen: 5, OwnLen: 5, Causal: true}, {Q: 5, QLen: 4, PrefixLen: 5, Own: 5, OwnLen: 4, Causal: true},
			{Q: 9, QLen: 3, PrefixLen: 5, Own: 9, OwnLen: 3, Causal: true}}},
		{"windows that see all of themselves", 75, 75, 3, 3, 10, []Span{{Q: 64, QLen: 11, Own: 64, OwnLen: 11}, {QLen: 64, OwnLen: 64}}},
		{"windows of one size", 24, 24, 4, 2, 8, []Span{{QLen: 8, OwnLen: 8}, {Q: 8, QLen: 8, Own: 8, OwnLen: 8},
			{Q: 16, QLen: 8, Own: 16, OwnLen: 8}}},
		{"decoding two samples of a prompt", 2, 20, 4, 2, 8, []Span{
			{Q: 1, QLen: 1, PrefixLen: 6, Own: 13, OwnLen: 3, Causal: true}, {QLen: 1, PrefixLen: 6, Own: 6, OwnLen: 3, Causal: true}}},
		{"prefill after a cache", 6, 40, 2, 2, 24, []Span{{QLen: 6, Own: 3, OwnLen: 29, Causal: true}}},
		{"decoding from a cache with a prefix", 3, 60, 14, 2, 12, []Span{
			{Q: 0, QLen: 1, Prefix: 0, PrefixLen: 9, Own: 20, OwnLen: 1, Causal: true},
			{Q: 1, QLen: 1, Prefix: 0, PrefixLen: 9, Own: 30, OwnLen: 17, Causal: true},
			{Q: 2, QLen: 1, Own: 50, OwnLen: 10, Causal: true}}},
		{"keys that a row's own do not follow", 2, 9, 1, 1, 3, []Span{{QLen: 2, Prefix: 6, PrefixLen: 3, Own: 0, OwnLen: 4, Causal: true}}},
	}
}

func TestAttend(t *testing.T) {
	scoped(t)
	for _, c := range attendCases() {
		t.Run(c.name, func(t *testing.T) {
			defer Scope()()
			x := operands(c.name, []int{c.n, c.hq, c.d}, []int{c.m, c.hk, c.d}, []int{c.m, c.hk, c.d})
			scale := 1 / math.Sqrt(float64(c.d))
			want := plainAttend(x[0], x[1], x[2], c.hq, c.hk, c.d, c.spans, scale, func(_, _ int) float64 { return 0 })
			for dtype, tol := range map[DType]float64{Float64: 1e-12, Float32: 1e-5, BFloat16: 0.05} {
				q, k, v := From(x[0], c.n, c.hq, c.d).To(dtype), From(x[1], c.m, c.hk, c.d).To(dtype), From(x[2], c.m, c.hk, c.d).To(dtype)
				golden.Close(t, Attend(q, k, v, c.spans, scale).Floats(), want, tol)
				golden.Close(t, Attend(RequireGrad(q), k, v, c.spans, scale).Floats(), want, tol) // the path that keeps what backward needs
			}
		})
	}
}

func TestAttendGradients(t *testing.T) {
	scoped(t)
	for _, c := range attendCases() {
		t.Run(c.name, func(t *testing.T) {
			checkGradients(t, [][]int{{c.n, c.hq, c.d}, {c.m, c.hk, c.d}, {c.m, c.hk, c.d}}, 2e-5, func(in []Tensor) []Tensor {
				return []Tensor{Attend(in[0], in[1], in[2], c.spans, 0.4)}
			})
		})
	}
}

// biasReach is the distance that the biases of these tests reach, both ways: that of the longest case.
const biasReach = 130

func TestAttendBiased(t *testing.T) {
	scoped(t)
	for _, c := range attendCases() {
		t.Run(c.name, func(t *testing.T) {
			defer Scope()()
			shapes := [][]int{{c.n, c.hq, c.d}, {c.m, c.hk, c.d}, {c.m, c.hk, c.d}, {c.hq, 2*biasReach + 1}}
			x := operands(c.name, shapes...)
			want := plainAttend(x[0], x[1], x[2], c.hq, c.hk, c.d, c.spans, 0.4,
				func(h, distance int) float64 { return x[3][h*(2*biasReach+1)+biasReach+distance] })
			for dtype, tol := range map[DType]float64{Float64: 1e-12, Float32: 1e-5, BFloat16: 0.05} {
				q, k, v := From(x[0], shapes[0]...).To(dtype), From(x[1], shapes[1]...).To(dtype), From(x[2], shapes[2]...).To(dtype)
				bias := From(x[3], shapes[3]...)
				if dtype != Float64 {
					bias = bias.To(Float32)
				}
				golden.Close(t, AttendBiased(q, k, v, c.spans, 0.4, bias, biasReach).Floats(), want, tol)
				golden.Close(t, AttendBiased(q, k, v, c.spans, 0.4, RequireGrad(bias), biasReach).Floats(), want, tol)
			}
		})
	}
}

// The gradient of the bias is the sum over all rows, spans and keys at its distance.
func TestAttendBiasedGradients(t *testing.T) {
	scoped(t)
	for _, c := range attendCases() {
		t.Run(c.name, func(t *testing.T) {
			checkGradients(t, [][]int{{c.n, c.hq, c.d}, {c.m, c.hk, c.d}, {c.m, c.hk, c.d}, {c.hq, 2*biasReach + 1}}, 2e-5,
				func(in []Tensor) []Tensor {
					return []Tensor{AttendBiased(in[0], in[1], in[2], c.spans, 0.4, in[3], biasReach)}
				})
		})
	}
}

func TestAttendRefusesBiases(t *testing.T) {
	scoped(t)
	q, causal, all := Zeros(4, 2, 8), []Span{{QLen: 4, OwnLen: 4, Causal: true}}, []Span{{QLen: 4, OwnLen: 4}}
	try := func(bias Tensor, spans []Span, zero int) error {
		return Try(func() error { AttendBiased(q, q, q, spans, 1, bias, zero); return nil })
	}
	for _, fits := range []error{try(Zeros(2, 4), causal, 3), try(Zeros(2, 7), all, 3)} {
		if fits != nil {
			t.Error(fits)
		}
	}
	for name, err := range map[string]error{
		"too short to the left":   try(Zeros(2, 7), all, 2),
		"too short to the right":  try(Zeros(2, 6), all, 3),
		"without distance 0":      try(Zeros(2, 3), causal, 3),
		"of another head's count": try(Zeros(1, 7), all, 3),
	} {
		if err == nil {
			t.Errorf("a bias %s passed", name)
		}
	}
}

func TestAttendRefusesSpans(t *testing.T) {
	scoped(t)
	q, k := Zeros(4, 2, 8), Zeros(6, 1, 8)
	for name, spans := range map[string][]Span{
		"a row in no span":           {{QLen: 3, OwnLen: 3}},
		"a row in two":               {{QLen: 3, OwnLen: 3}, {Q: 2, QLen: 2, OwnLen: 3}},
		"rows that q has not":        {{QLen: 5, OwnLen: 5}},
		"keys outside":               {{QLen: 4, Own: 3, OwnLen: 4}},
		"no keys":                    {{QLen: 4}},
		"fewer own keys than causal": {{QLen: 4, PrefixLen: 2, OwnLen: 3, Causal: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Try(func() error { Attend(q, k, k, spans, 1); return nil }); err == nil {
				t.Errorf("%+v passed", spans)
			}
		})
	}
}

func TestLoRALinear(t *testing.T) {
	scoped(t)
	const n, in, out, r = 11, 19, 13, 3
	for _, rows := range [][]int{{n, in}, {2, 5, in}, {1, in}, {2, in}, {3, in}, {4, in}} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			shapes := [][]int{rows, {out, in}, {out}, {r, in}, {out, r}}
			checkGradients(t, shapes, 2e-5, func(x []Tensor) []Tensor { return []Tensor{LoRALinear(x[0], x[1], x[2], x[3], x[4], 0.7)} })
			defer Scope()()
			values := operands("lora", shapes...)
			x := make([]Tensor, len(shapes))
			for i, v := range values {
				x[i] = From(v, shapes[i]...)
			}
			want := Add(Linear(x[0], x[1], x[2]), Scale(MatMul(MatMul(x[0], Transpose(x[3], 0, 1)), Transpose(x[4], 0, 1)), 0.7)).Floats()
			golden.Close(t, LoRALinear(x[0], x[1], x[2], x[3], x[4], 0.7).Floats(), want, 1e-12)
			for i := range x {
				x[i] = x[i].To(Float32)
			}
			end := NoGrad()
			got := LoRALinear(x[0], x[1], x[2], x[3], x[4], 0.7) // few rows go another way then
			end()
			golden.Close(t, got.Floats(), want, 1e-4)
		})
	}
}

// TestLoRALinearParams has frozen and trainable weights: gradients go into the buffers, a frozen one gets none.
func TestLoRALinearParams(t *testing.T) {
	scoped(t)
	const n, in, out, r = 9, 16, 24, 8
	v := operands("params", []int{n, in}, []int{out, in}, []int{out}, []int{r, in}, []int{out, r})
	shapes := map[string][]int{"w": {out, in}, "bias": {out}, "a": {r, in}, "b": {out, r}}
	values := map[string][]float64{"w": v[1], "bias": v[2], "a": v[3], "b": v[4]}
	for _, trained := range [][]string{{"a", "b"}, {"w", "bias", "a", "b"}, {"b"}, {"w"}} {
		t.Run(fmt.Sprint(trained), func(t *testing.T) {
			defer Scope()()
			var specs []Spec
			for _, name := range trained {
				specs = append(specs, Spec{name, shapes[name]})
			}
			p := NewParams(specs, "cpu")
			defer p.Free()
			get := func(name string) Tensor { // the parameter, or a frozen constant
				value := From(values[name], shapes[name]...).To(Float32)
				if !p.Has(name) {
					return value
				}
				Copy(p.Get(name), value)
				return p.Get(name)
			}
			x := RequireGrad(From(v[0], n, in).To(Float32))
			for range 2 { // gradients are added
				Backward(Sum(Square(LoRALinear(x, get("w"), get("bias"), get("a"), get("b"), 2))))
			}
			plain := map[string]Tensor{"x": RequireGrad(From(v[0], n, in))}
			for name, value := range values {
				plain[name] = RequireGrad(From(value, shapes[name]...))
			}
			low := MatMul(plain["x"], Transpose(plain["a"], 0, 1))
			y := Add(Add(MatMul(plain["x"], Transpose(plain["w"], 0, 1)), plain["bias"]),
				Scale(MatMul(low, Transpose(plain["b"], 0, 1)), 2))
			Backward(Scale(Sum(Square(y)), 2))
			golden.Close(t, Grad(x).Floats(), Grad(plain["x"]).Floats(), 0.05)
			for _, name := range trained {
				golden.Close(t, Grad(p.Get(name)).Floats(), Grad(plain[name]).Floats(), 0.05) // of values up to 5000
			}
		})
	}
}

// TestLinearOfBFloat16Weights computes with float32 rows over weights that stay bfloat16.
func TestLinearOfBFloat16Weights(t *testing.T) {
	scoped(t)
	v := operands("bf16", []int{20, 37}, []int{130, 37}, []int{130}, []int{4, 37}, []int{130, 4})
	w, bias := From(v[1], 130, 37).To(BFloat16), From(v[2], 130).To(Float32)
	a, b := From(v[3], 4, 37).To(Float32), From(v[4], 130, 4).To(Float32)
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 15, 20} {
		x := From(v[0][:n*37], n, 37).To(Float32)
		want := Linear(x.To(Float64), w.To(Float64), bias.To(Float64))
		golden.Close(t, Linear(x, w, bias).Floats(), want.Floats(), 1e-4)
		want = LoRALinear(x.To(Float64), w.To(Float64), bias.To(Float64), a.To(Float64), b.To(Float64), 0.5)
		golden.Close(t, LoRALinear(x, w, bias, a, b, 0.5).Floats(), want.Floats(), 1e-4)
		end := NoGrad()
		golden.Close(t, LoRALinear(x, w, bias, a, b, 0.5).Floats(), want.Floats(), 1e-4)
		end()
		x = RequireGrad(x)
		Backward(Sum(LoRALinear(x, w, bias, a, b, 0.5)))
		y := RequireGrad(x.To(Float64))
		plain := RequireGrad(Detach(y))
		Backward(Sum(LoRALinear(plain, w.To(Float64), bias.To(Float64), a.To(Float64), b.To(Float64), 0.5)))
		golden.Close(t, Grad(x).Floats(), Grad(plain).Floats(), 1e-4)
		x, plain = RequireGrad(Detach(x)), RequireGrad(Detach(plain))
		Backward(Sum(Square(Linear(x, w, bias))))
		Backward(Sum(Square(Linear(plain, w.To(Float64), bias.To(Float64)))))
		golden.Close(t, Grad(x).Floats(), Grad(plain).Floats(), 2e-3)
	}
}

// TestFewRowsAlone: up to forty rows of a product are, to the last bit, what each is alone where their width is that of models.
func TestFewRowsAlone(t *testing.T) {
	defer Scope()()
	r := rng.New(6, "rows")
	for range 60 {
		n, k, out := 2+r.IntN(39), 8*(1+r.IntN(25)), 1+r.IntN(120)
		draw := func(shape ...int) Tensor {
			x := make([]float32, shape[0]*shape[1])
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			return From(x, shape...)
		}
		x, w, bias := draw(n, k), draw(out, k), Reshape(draw(1, out), out)
		for _, w := range []Tensor{w, w.To(BFloat16)} {
			all := Data[float32](Linear(x, w, bias))
			for i := range n {
				alone := Data[float32](Linear(Narrow(x, 0, i, 1), w, bias))
				if !slices.Equal(alone, all[i*out:(i+1)*out]) {
					t.Fatalf("row %d of %d, [%d, %d] of %v: %v alone, %v beside the others", i, n, out, k, w.DType(), alone, all[i*out:(i+1)*out])
				}
			}
		}
	}
}

func TestTokenLogp(t *testing.T) {
	scoped(t)
	// one row, logits (1, 0, -1)·2/0.5: log softmax by hand
	logp, entropy := TokenLogp(From([]float64{2}, 1, 1), From([]float64{1, 0, -1}, 3, 1), From([]int64{1}, 1), 0.5)
	z := []float64{4, 0, -4}
	lse := math.Log(math.Exp(4) + 1 + math.Exp(-4))
	h := 0.0
	for _, x := range z {
		h -= math.Exp(x-lse) * (x - lse)
	}
	golden.Close(t, append(logp.Floats(), entropy.Floats()...), []float64{-lse, h}, 1e-12)
	for _, c := range []struct{ n, width, vocabulary int }{{1, 3, 5}, {7, 16, 1030}, {530, 4, 60}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := rng.New(5, "targets")
			targets := make([]int64, c.n)
			for i := range targets {
				targets[i] = int64(r.IntN(c.vocabulary))
			}
			targets[0] = int64(c.vocabulary - 1)
			checkGradients(t, [][]int{{c.n, c.width}, {c.vocabulary, c.width}}, 1e-4, func(in []Tensor) []Tensor {
				logp, entropy := TokenLogp(in[0], in[1], From(targets, c.n), 0.8)
				return []Tensor{logp, entropy}
			})
		})
	}
	if err := Try(func() error { TokenLogp(Zeros(1, 2), Zeros(3, 2), From([]int64{3}, 1), 1); return nil }); err == nil {
		t.Error("a target outside of the vocabulary passed")
	}
}

func TestTokenKL(t *testing.T) {
	scoped(t)
	const n, width, vocabulary = 520, 3, 1100
	v := operands("kl", []int{n, width}, []int{vocabulary, width}, []int{n, width}, []int{vocabulary, width})
	p, r := LogSoftmax(MatMul(From(v[0], n, width), Transpose(From(v[1], vocabulary, width), 0, 1)), -1),
		LogSoftmax(MatMul(From(v[2], n, width), Transpose(From(v[3], vocabulary, width), 0, 1)), -1)
	want := Sum(Mul(Exp(p), Sub(p, r)), 1).Floats()
	for dtype, tol := range map[DType]float64{Float64: 1e-10, Float32: 1e-4} {
		in := make([]Tensor, 4)
		for i, shape := range [][]int{{n, width}, {vocabulary, width}, {n, width}, {vocabulary, width}} {
			in[i] = From(v[i], shape...).To(dtype)
		}
		golden.Close(t, TokenKL(in[0], in[1], in[2], in[3]).Floats(), want, tol)
		golden.Close(t, TokenKL(in[0], in[1], in[0], in[1]).Floats(), make([]float64, n), tol)
	}
}

func TestRowsInPlace(t *testing.T) {
	scoped(t)
	cache := Zeros(5, 2)
	WriteRowsAt(cache, From([]int64{1, 2}, 2), From([]float32{1, 2, 3, 4}, 2, 2))
	WriteRowsAt(cache, From([]int64{4, 0}, 2), From([]float32{5, 6, 7, 8}, 2, 2))
	golden.Close(t, cache.Floats(), []float64{7, 8, 1, 2, 3, 4, 0, 0, 5, 6}, 0)
	rows := From([]int64{2, 0}, 2)
	checkGradients(t, [][]int{{3, 4}, {2, 4}}, 1e-6, func(in []Tensor) []Tensor {
		return []Tensor{ReplaceRows(in[0], rows, in[1])}
	})
	golden.Close(t, ReplaceRows(From([]float64{1, 2, 3}, 3, 1), rows, From([]float64{8, 9}, 2, 1)).Floats(), []float64{9, 2, 8}, 0)
}

// TestTransformerIsTheSameAgain runs the fused operations twice: the same numbers for the same number of threads.
func TestTransformerIsTheSameAgain(t *testing.T) {
	scoped(t)
	shapes := [][]int{{96, 4, 16}, {96, 2, 16}, {96, 2, 16}, {64}, {1500, 64}}
	values := operands("again", shapes...)
	targets := make([]int64, 96)
	run := func() [][]float64 {
		_, out, grads := gradients(Float32, values, shapes, func(in []Tensor) []Tensor {
			y := Reshape(Attend(in[0], in[1], in[2], []Span{{QLen: 50, OwnLen: 50, Causal: true},
				{Q: 50, QLen: 46, PrefixLen: 50, Own: 50, OwnLen: 46, Causal: true}}, 0.25), 96, 64)
			y = RMSNorm(SwiGLU(y, y), in[3], 1e-6)
			logp, entropy := TokenLogp(y, in[4], From(targets, 96), 1)
			return []Tensor{logp, entropy}
		})
		return append(out, grads...)
	}
	t.Cleanup(func() { Attach(1) })
	for _, threads := range []int{1, 2} {
		Attach(threads)
		first := run()
		for i, x := range run() {
			if !slices.Equal(x, first[i]) {
				t.Errorf("%d threads: result %d differs the second time", threads, i)
			}
		}
	}
}
