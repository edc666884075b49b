package torchx

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/hostmem"
	"fulcrum/internal/testkit/golden"
)

func TestMain(m *testing.M) {
	if err := Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func scoped(t *testing.T) {
	t.Helper()
	Attach(1)
	before := Live()
	end := Scope()
	t.Cleanup(func() {
		end()
		if Live() != before {
			t.Errorf("%d tensors outlived the test's scope", Live()-before)
		}
	})
}

func TestErrorsNameOperationAndShapes(t *testing.T) {
	scoped(t)
	for _, tc := range []struct {
		name string
		f    func()
		want string
	}{
		{"an operation of ours", func() { MatMul(Zeros(2, 3), Zeros(4, 5)) }, "matmul([2,3]float32, [4,5]float32)"},
		{"an operation of gotorch's", func() { Mul(Zeros(2, 3), Zeros(4, 5)) }, "mul([2,3]float32, [4,5]float32)"},
		{"an index outside", func() { Gather(Zeros(2, 3), 1, From([]int64{7, 0}, 2, 1)) }, "gather([2,3]float32, [2,1]int64)"},
		{"backward without history", func() { Backward(Zeros()) }, "backward([]float32)"},
		{"a shape that data does not fill", func() { From([]float32{1, 2, 3}, 2, 2) }, "3 elements do not fill shape [2 2]"},
		{"a dtype that data has not", func() { Data[float64](Zeros(1)) }, "tensor is float32, want float64"},
		{"a checked shape", func() { MustShape(Zeros(2, 3), 2, 4) }, "got [2 3], want [2 4]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Try(func() error { tc.f(); return nil })
			var op *OpError
			if !errors.As(err, &op) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an OpError containing %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestUseAfterScope(t *testing.T) {
	scoped(t)
	end := Scope()
	x := Zeros(2)
	end()
	if !x.Nil() {
		t.Fatal("the scope's end left the tensor alive")
	}
	for name, f := range map[string]func(){"add": func() { Add(x, x) }, "exp": func() { Exp(x) }} {
		if err := Try(func() error { f(); return nil }); err == nil || !strings.Contains(err.Error(), "scope has ended") {
			t.Errorf("%s on a freed tensor: %v", name, err)
		}
	}
}

func TestKeepMovesOneScopeOut(t *testing.T) {
	Attach(1)
	before := Live()
	outer := Scope()
	inner := Scope()
	x := Keep(Full(3, 1))
	y := Full(4, 1)
	inner()
	if x.Nil() || !y.Nil() {
		t.Fatalf("after the inner scope: kept %v, other %v", x.Nil(), y.Nil())
	}
	golden.Close(t, []float64{x.Item()}, []float64{3}, 0)
	outer()
	if !x.Nil() || Live() != before {
		t.Errorf("after the outer scope: %d tensors left", Live()-before)
	}
}

func TestDataRoundTrips(t *testing.T) {
	scoped(t)
	f := []float32{1, -2.5, float32(math.Inf(1)), 3e-39}
	for i, v := range Data[float32](From(f, 2, 2)) {
		if v != f[i] {
			t.Errorf("float32 %d: %v, want %v", i, v, f[i])
		}
	}
	n := []int64{1 << 60, -5}
	for i, v := range Data[int64](From(n, 2)) {
		if v != n[i] {
			t.Errorf("int64 %d: %v, want %v", i, v, n[i])
		}
	}
	if got := len(Data[float32](Zeros(0, 3))); got != 0 {
		t.Errorf("an empty tensor gave %d values", got)
	}
}

// TestAdamW: torch.optim.AdamW(lr=0.1, weight_decay=0.01) on p = [1, -2], g = [0.5, -1.5], then g = [0.1, 0.2].
// By hand from the definition in float64.
func TestAdamW(t *testing.T) {
	scoped(t)
	p := NewParams([]Spec{{"a", []int{1}}, {"b", []int{1, 1}}}, "cpu")
	defer p.Free()
	p.SetValues([]float32{1, -2})
	opt := NewAdamW(p, 0.9, 0.999, 1e-8, 0.01)
	defer opt.Free()
	want, m, v := []float64{1, -2}, []float64{0, 0}, []float64{0, 0}
	for step, g := range [][]float64{{0.5, -1.5}, {0.1, 0.2}, {-3, 0}} {
		Copy(p.Grad(), From([]float32{float32(g[0]), float32(g[1])}, 2))
		if got, norm := p.GradNorm(), math.Hypot(g[0], g[1]); math.Abs(got-norm) > 1e-6 {
			t.Errorf("gradient norm %v, want %v", got, norm)
		}
		opt.Step(0.1, 0.5) // a clipping factor of one half
		for i := range want {
			gi := g[i] * 0.5
			m[i], v[i] = 0.9*m[i]+0.1*gi, 0.999*v[i]+0.001*gi*gi
			k := float64(step + 1)
			want[i] = want[i]*(1-0.1*0.01) - 0.1*m[i]/(1-math.Pow(0.9, k))/(math.Sqrt(v[i]/(1-math.Pow(0.999, k)))+1e-8)
		}
		golden.Close(t, p.Flat().Floats(), want, 1e-6)
	}
	golden.Close(t, p.Get("b").Floats(), want[1:], 1e-6) // the view sees the flat buffer
	mv, vv, steps := opt.State()
	other := NewAdamW(p, 0.9, 0.999, 1e-8, 0.01)
	defer other.Free()
	if err := other.SetState(mv, vv, steps); err != nil {
		t.Fatal(err)
	}
	if err := other.SetState(mv[:1], vv, steps); err == nil {
		t.Error("a state of another size was accepted")
	}
	before := p.Values()
	opt.Step(0.1, 1)
	first := p.Values()
	p.SetValues(before)
	other.Step(0.1, 1)
	for i, x := range p.Values() {
		if x != first[i] {
			t.Errorf("restored optimizer: %v, want %v", x, first[i])
		}
	}
}

// Parameters and their optimizer leave nothing behind, made outside any scope too.
func TestParamsFreeAll(t *testing.T) {
	Attach(1)
	before := Live()
	p := NewParams([]Spec{{"w", []int{2, 3}}, {"b", []int{3}}}, "cpu")
	opt := NewAdamW(p, 0.9, 0.999, 1e-8, 0.01)
	opt.ScaleLR(func(string) float64 { return 0.5 })
	opt.Free()
	p.Free()
	if n := Live() - before; n != 0 {
		t.Errorf("%d tensors left", n)
	}
}

// ToLike shares the memory of a tensor that is already where it should be.
func TestToLike(t *testing.T) {
	scoped(t)
	x := From([]float32{1, 2}, 2)
	y := ToLike(x, Zeros(1))
	Copy(x, From([]float32{3, 4}, 2))
	golden.Close(t, y.Floats(), []float64{3, 4}, 0)
	for n := 0; ; n++ {
		device, err := Device(fmt.Sprintf("cuda:%d", n), 0)
		if err != nil {
			break
		}
		far := Zeros(1).ToDevice(device)
		golden.Close(t, Add(ToLike(x, far), far).Floats(), []float64{3, 4}, 0) // Add refuses two devices
	}
}

func TestAdamWScales(t *testing.T) {
	scoped(t)
	p := NewParams([]Spec{{"frozen", []int{1}}, {"free", []int{1}}}, "cpu")
	defer p.Free()
	p.SetValues([]float32{1, 1})
	opt := NewAdamW(p, 0.9, 0.999, 1e-8, 0.5)
	defer opt.Free()
	opt.ScaleLR(func(n string) float64 {
		if n == "frozen" {
			return 0
		}
		return 1
	})
	Copy(p.Grad(), From([]float32{1, 0}, 2))
	opt.Step(0.1, 1)
	golden.Close(t, p.Flat().Floats(), []float64{1, 0.95}, 1e-6)
}

// TestGradients compares autograd with central differences in float64 for the operations that policies compose.
func TestGradients(t *testing.T) {
	scoped(t)
	idx := From([]int64{1, 0, 2, 1}, 2, 2)
	weight := From([]float64{0.3, -0.2, 0.5, 0.7, 0.1, -0.4}, 2, 3)
	for _, tc := range []struct {
		name string
		f    func(x Tensor) Tensor // x [2, 3] float64
	}{
		{"normalize", func(x Tensor) Tensor { return Mul(Normalize(x), weight) }},
		{"log_softmax and gather", func(x Tensor) Tensor { return Gather(LogSoftmax(x, -1), 1, idx) }},
		{"logsumexp", func(x Tensor) Tensor { return LogSumExp(x, 1, false) }},
		{"layer_norm", func(x Tensor) Tensor {
			return Square(LayerNorm(x, From([]float64{1, 2, 3}, 3), From([]float64{0, 1, 0}, 3), 1e-5))
		}},
		{"clamp and minimum", func(x Tensor) Tensor { return Minimum(Clamp(x, -0.5, 0.6), Scale(x, 2)) }},
		{"linear", func(x Tensor) Tensor { return Tanh(Linear(x, weight, Tensor{})) }},
		{"masked softmax", func(x Tensor) Tensor {
			return Mul(Softmax(MaskedFill(x, Compare(weight, "lt", 0), -1e9), -1), weight)
		}},
		{"cat, narrow, expand", func(x Tensor) Tensor {
			return Exp(Narrow(Cat(1, x, Expand(SumKeep(x, 1), 2, 3)), 1, 1, 4))
		}},
		{"split", func(x Tensor) Tensor {
			a, b := Split(x, 1, 1)
			return Mul(Exp(a), Square(b))
		}},
		{"embedding", func(x Tensor) Tensor { return Square(Embedding(x, From([]int64{1, 1, 0}, 3))) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer Scope()()
			at := []float64{0.3, -0.7, 1.1, 0.05, 0.4, -0.2}
			x := From(at, 2, 3)
			RequireGrad(x)
			Backward(Sum(tc.f(x)))
			got := Grad(x).Floats()
			want := make([]float64, len(at))
			const h = 1e-6
			for i := range at {
				y := append([]float64(nil), at...)
				y[i] += h
				hi := Sum(tc.f(From(y, 2, 3))).Item()
				y[i] -= 2 * h
				want[i] = (hi - Sum(tc.f(From(y, 2, 3))).Item()) / (2 * h)
			}
			golden.Close(t, got, want, 1e-7)
		})
	}
}

func TestNoGrad(t *testing.T) {
	scoped(t)
	x := From([]float32{1}, 1)
	RequireGrad(x)
	end := NoGrad()
	y := Exp(x)
	end()
	if y.RequiresGrad() || !Exp(x).RequiresGrad() {
		t.Errorf("inside NoGrad: %v, after: %v", y.RequiresGrad(), Exp(x).RequiresGrad())
	}
}

func TestGeneratorRepeats(t *testing.T) {
	scoped(t)
	g := NewGenerator(7, "cpu")
	defer g.Free()
	a := g.Uniform(Tensor{}, 0, 1, 5).Floats()
	b := g.Normal(Tensor{}, 0, 1, 5).Floats()
	g.Seed(7)
	golden.Close(t, g.Uniform(Tensor{}, 0, 1, 5).Floats(), a, 0)
	golden.Close(t, g.Normal(Tensor{}, 0, 1, 5).Floats(), b, 0)
	drop := Sum(g.DropoutRows(Full(1, 10000), 0.3, []int{4000, 0, 6000}, func(i int) uint64 { return uint64(i) })).Item()
	if math.Abs(drop-10000) > 300 { // 4.6 standard deviations of a mean kept at 1
		t.Errorf("dropout changed the sum of 10000 ones to %v", drop)
	}
}

// TestMemoryIsFlat is the leak test: steps with forward, backward and update leave no tensor and no memory behind.
// A generator lives on the device it was asked for, or there is none.
func TestGeneratorDevice(t *testing.T) {
	scoped(t)
	const device = "cuda:0"
	var g *Generator
	err := Try(func() error { g = NewGenerator(1, device); return nil })
	if !CUDAAvailable() {
		if err == nil {
			t.Errorf("a generator on %s without CUDA: want an error", device)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer g.Free()
	x := g.Uniform(Zeros(1).ToDevice(device), 0, 1, 100)
	g.Seed(1)
	if a, b := x.Floats(), g.Uniform(x, 0, 1, 100).Floats(); !slices.Equal(a, b) || slices.Max(a) == slices.Min(a) {
		t.Errorf("the same seed gives %v, then %v", a[:3], b[:3])
	}
}

func TestMemoryIsFlat(t *testing.T) {
	scoped(t)
	steps := 2000
	if os.Getenv("FULCRUM_LONG") != "" {
		steps = 10000
	}
	p := NewParams([]Spec{{"w", []int{128, 128}}, {"b", []int{128}}}, "cpu")
	defer p.Free()
	opt := NewAdamW(p, 0.9, 0.999, 1e-8, 0.01)
	defer opt.Free()
	g := NewGenerator(1, "cpu")
	defer g.Free()
	step := func() {
		defer Scope()()
		x := g.Normal(Tensor{}, 0, 1, 256, 128)
		p.ZeroGrad()
		Backward(Mean(Square(Linear(x, p.Get("w"), p.Get("b")))))
		opt.Step(1e-3, 1)
	}
	for range 200 {
		step()
	}
	live, rss := Live(), residentKB(t)
	for range steps {
		step()
	}
	if Live() != live {
		t.Errorf("%d tensors leaked in %d steps", Live()-live, steps)
	}
	// One leaked activation a step would be 128 kB · steps; the allowance is the allocator's own wandering.
	if grown := residentKB(t) - rss; grown > 16*1024 {
		t.Errorf("resident memory grew by %d kB in %d steps", grown, steps)
	}
}

func residentKB(t *testing.T) int {
	t.Helper()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc: ", err)
	}
	kb := int(hostmem.Resident() / 1024)
	if kb == 0 {
		t.Fatal("no VmRSS")
	}
	return kb
}

// Deterministic operations are all that the policies need, and on the CPU they give what the others give.
func TestDeterministic(t *testing.T) {
	scoped(t)
	step := func() []float64 {
		p := NewParams([]Spec{{"w", []int{5, 3}}}, "cpu")
		defer p.Free()
		p.SetValues([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
		w := p.Get("w")
		rows := Embedding(w, From([]int64{0, 4, 4, 2}, 2, 2))                                     // [2, 2, 3]
		picked := Gather(LogSoftmax(Scale(rows, 0.1), -1), 2, From([]int64{0, 1, 2, 0}, 2, 2, 1)) // [2, 2, 1]
		Backward(Sum(Add(picked, SumKeep(IndexSelect(MatMul(rows, Transpose(w, 0, 1)), 2, From([]int64{1, 1}, 2)), 2))))
		return p.Grad().Floats()
	}
	want := step()
	SetDeterministic(true)
	defer SetDeterministic(false)
	golden.Close(t, step(), want, 0)
}

func TestDevice(t *testing.T) {
	for _, tc := range []struct{ in, want, err string }{
		{"cpu", "cpu", ""},
		{"gpu", "", "want auto, cpu, cuda or cuda:N"},
		{"cuda:x", "", "want auto, cpu, cuda or cuda:N"},
		{"cuda:99", "", "device=cuda:99"},
	} {
		got, err := Device(tc.in, 0)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("Device(%q) = %q, %v; want %q, %q", tc.in, got, err, tc.want, tc.err)
		}
	}
}

// TestStepClipped: the factor that the step computes is the host's to the bit, and what is not finite changes nothing.
func TestStepClipped(t *testing.T) {
	Attach(1)
	inf := float32(math.Inf(1))
	for _, tc := range []struct {
		name       string
		grad, loss []float32
		clip       float64
		moves      bool
	}{
		{"clipped", []float32{3, 4, 0}, []float32{1}, 1, true},
		{"within the limit", []float32{0.1, 0, 0.2}, []float32{1, 2}, 1, true},
		{"no limit", []float32{3, 4, 0}, nil, 0, true},
		{"gradient NaN", []float32{3, float32(math.NaN()), 0}, []float32{1}, 1, false},
		{"gradient infinite", []float32{3, inf, 0}, []float32{1}, 0, false},
		{"loss infinite", []float32{3, 4, 0}, []float32{1, inf}, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer Scope()()
			values := func(step func(p *Params, a *AdamW)) ([]float32, []float32, *AdamW) {
				p := NewParams([]Spec{{Name: "w", Shape: []int{3}}}, "cpu")
				defer p.Free()
				p.SetValues([]float32{1, -2, 0.5})
				Copy(p.Grad(), From(tc.grad, 3))
				a := NewAdamW(p, 0.9, 0.999, 1e-8, 0.01)
				defer a.Free()
				step(p, a)
				m, _, _ := a.State()
				return p.Values(), m, a
			}
			got, m, a := values(func(p *Params, a *AdamW) {
				var losses Tensor
				if tc.loss != nil {
					losses = From(tc.loss, len(tc.loss))
				}
				a.StepClipped(0.1, tc.clip, SumSquares(p.Grad()), losses, true)
			})
			if !tc.moves {
				if a.Refused(); !slices.Equal(got, []float32{1, -2, 0.5}) || !slices.Equal(m, []float32{0, 0, 0}) || a.Steps() != 0 {
					t.Errorf("weights %v, moments %v, %d steps: want nothing changed", got, m, a.Steps())
				}
				return
			}
			want, _, _ := values(func(p *Params, a *AdamW) {
				scale := 1.0
				if tc.clip > 0 {
					scale = math.Min(1, tc.clip/(p.GradNorm()+1e-6))
				}
				a.Step(0.1, scale)
			})
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestRead: tensors of several types in one copy.
func TestRead(t *testing.T) {
	defer Scope()()
	before := Counted()
	got := Read(From([]float32{0.1, 2}, 2, 1), Tensor{}, From([]float64{math.Pi}, 1), Full(7), From([]int64{-3, 1 << 40}, 2))
	want := [][]float64{{float64(float32(0.1)), 2}, nil, {math.Pi}, {7}, {-3, 1 << 40}}
	if !slices.EqualFunc(got, want, slices.Equal[[]float64]) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := Counted().Minus(before).ReadBacks; n != 1 {
		t.Errorf("%d copies to the host, want 1", n)
	}
}
