package torchx

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"fulcrum/internal/rng"
)

// descent makes steps of an optimizer that keeps its moments so, with gradients by chance, and returns weights, moments and Σ m².
// Halfway the state goes through State and SetState to a new one.
func descent(t *testing.T, keep, device string, n, steps int) (weights, m, v []float32, squares float64) {
	t.Helper()
	defer Scope()()
	p := NewParams([]Spec{{"a", []int{n - 3}}, {"b", []int{3}}}, device)
	defer p.Free()
	a := NewAdamWKept(keep, p, 0, 1, 0.9, 0.999, 1e-8, 0.01)
	r := rng.New(3, "gradients")
	for step := range steps {
		if step == steps/2 {
			m, v, done := a.State()
			a.Free()
			a = NewAdamWKept(keep, p, 0, 1, 0.9, 0.999, 1e-8, 0.01)
			if err := a.SetState(m, v, done); err != nil {
				t.Fatal(err)
			}
		}
		g := make([]float32, n)
		for i := range g {
			g[i] = float32((r.Float64() - 0.3) / float64(1+9*(3*step/steps))) // that become smaller
		}
		Copy(p.Grad(), From(g, n))
		a.StepClipped(1e-3, 0, SumSquares(p.Grad()), Tensor{}, true)
	}
	defer a.Free()
	squares = a.MomentSquares().Item()
	m, v, _ = a.State()
	return p.Values(), m, v, squares
}

// TestAdamWKept: moments in the host's memory change no number; in bfloat16 they are such numbers and keep their mean, whatever is
// updated together.
func TestAdamWKept(t *testing.T) {
	Attach(1)
	const n, steps = 300, 900
	weights, m, v, squares := descent(t, KeepFloat32, "cpu", n, steps)
	devices := []string{"cpu"}
	if CUDAAvailable() {
		devices = append(devices, "cuda")
	}
	defer func(was int) { stretch = was }(stretch)
	for _, device := range devices {
		stretch = 1 << 23
		weights, _, _, _ := descent(t, KeepFloat32, device, n, steps)
		if got, _, _, _ := descent(t, KeepOffload, device, n, steps); !slices.Equal(got, weights) {
			t.Errorf("%s: offload changes weights", device)
		}
	}
	half, hm, hv, hs := descent(t, KeepBFloat16, "cpu", n, steps)
	stretch = 7
	again, am, av, as := descent(t, KeepBFloat16, "cpu", n, steps)
	if !slices.Equal(half, again) || !slices.Equal(hm, am) || !slices.Equal(hv, av) || math.Abs(hs-as) > 1e-12*hs {
		t.Error("the rounding depends on what is updated together")
	}
	mean := func(x []float32) (sum float64) {
		for _, f := range x {
			sum += float64(f) / float64(len(x))
		}
		return sum
	}
	for i := range hm {
		if (math.Float32bits(hm[i])|math.Float32bits(hv[i]))&0xffff != 0 {
			t.Fatalf("element %d: %v and %v are no bfloat16", i, hm[i], hv[i])
		}
	}
	// Rounded to the nearest, it would be 1.8 times as large.
	if got, want := mean(hv), mean(v); math.Abs(got/want-1) > 0.01 {
		t.Errorf("the second moment is %v in the mean, want %v within 1 %%", got, want)
	}
	if got, want := mean(hm), mean(m); math.Abs(got/want-1) > 0.01 || math.Abs(hs/squares-1) > 0.01 {
		t.Errorf("the first moment is %v in the mean and Σ m² %v, want %v and %v within 1 %%", got, hs, want, squares)
	}
	moved, apart := 0.0, 0.0
	for i := range half {
		moved += math.Abs(float64(weights[i]))
		apart += math.Abs(float64(half[i] - weights[i]))
	}
	if apart > 0.01*moved {
		t.Errorf("weights have gone %v and lie %v apart, want 1 %% at most", moved, apart)
	}
}

// TestAdamWShares: processes that update a share each change the weights as one does, with one set of moments between them, however these
// are kept.
func TestAdamWShares(t *testing.T) {
	scoped(t)
	Attach(1)
	n := 5*grain + 100
	defer func(was int) { stretch = was }(stretch)
	stretch = 2 * grain
	p := NewParams([]Spec{{"a", []int{n - 3}}, {"b", []int{3}}}, "cpu")
	defer p.Free()
	type outcome struct {
		weights, m, v []float32
		squares       float64
	}
	for _, keep := range []string{KeepFloat32, KeepBFloat16} {
		run := func(size int) (o outcome) {
			r := rng.New(3, "gradients")
			p.SetValues(make([]float32, n))
			var m, v []float32
			for step := range 4 {
				g := make([]float32, n)
				for i := range g {
					g[i] = float32(r.Float64() - 0.3)
				}
				o.m, o.v = nil, nil
				var parts []float64
				for rank := range size {
					a := NewAdamWKept(keep, p, rank, size, 0.9, 0.999, 1e-8, 0.01)
					a.ScaleLR(func(name string) float64 { return map[string]float64{"a": 1, "b": 0.5}[name] })
					if m != nil {
						if err := a.SetState(m, v, step); err != nil {
							t.Fatal(err)
						}
					}
					Copy(p.Grad(), From(g, n))
					a.StepClipped(1e-3, 1, SumSquares(p.Grad()), Tensor{}, true)
					m1, v1, _ := a.State()
					o.m, o.v, parts = append(o.m, m1...), append(o.v, v1...), append(parts, a.MomentParts()...)
					if p.ZeroGrad(); p.GradNorm() != 0 {
						t.Fatal("the gradient of what others update is left")
					}
					if size == 1 {
						o.squares = a.MomentSquares().Item()
					}
					a.Free()
				}
				if m, v = o.m, o.v; size > 1 {
					o.squares = p.AddSquares(parts)
				}
			}
			o.weights = p.Values()
			return o
		}
		want := run(1)
		for _, size := range []int{2, 3, 8} {
			if got := run(size); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %d processes: Σ m² %v, want %v, and weights and moments like those of one", keep, size, got.squares, want.squares)
			}
		}
	}
}

// TestAdamWKeptRefused: a step that is not finite changes no moment in bfloat16.
func TestAdamWKeptRefused(t *testing.T) {
	scoped(t)
	p := NewParams([]Spec{{"w", []int{3}}}, "cpu")
	defer p.Free()
	a := NewAdamWKept(KeepBFloat16, p, 0, 1, 0.9, 0.999, 1e-8, 0.01)
	defer a.Free()
	Copy(p.Grad(), From([]float32{1, 2, 3}, 3))
	a.StepClipped(0.1, 1, SumSquares(p.Grad()), Tensor{}, true)
	m, v, _ := a.State()
	Copy(p.Grad(), From([]float32{1, float32(math.Inf(1)), 3}, 3))
	a.StepClipped(0.1, 1, SumSquares(p.Grad()), Tensor{}, true)
	a.Refused()
	if m2, v2, steps := a.State(); !slices.Equal(m, m2) || !slices.Equal(v, v2) || steps != 1 {
		t.Errorf("moments %v %v after %d steps, want %v %v after 1", m2, v2, steps, m, v)
	}
}
