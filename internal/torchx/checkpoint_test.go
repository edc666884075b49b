package torchx

import (
	"slices"
	"testing"
)

// checkpointModel is three layers over a trainable input, with or without recomputation; the weights' gradient,
// the input's, and how often a layer ran.
type checkpointModel struct {
	params *Params
	runs   int
}

func newCheckpointModel(t *testing.T) *checkpointModel {
	p := NewParams([]Spec{{"norm", []int{6}}, {"w0", []int{6, 6}}, {"w1", []int{6, 6}}, {"w2", []int{6, 6}}, {"table", []int{5, 6}}}, "cpu")
	t.Cleanup(p.Free)
	for _, name := range p.Names() {
		Copy(p.Get(name), From(operands(name, p.Shape(name))[0], p.Shape(name)...))
	}
	return &checkpointModel{params: p}
}

func (m *checkpointModel) layer(name string) func(Tensor) Tensor {
	return func(x Tensor) Tensor {
		m.runs++
		y := RMSNorm(x, m.params.Get("norm"), 1e-6)
		return Add(x, Tanh(Linear(y, m.params.Get(name), Tensor{})))
	}
}

// gradient runs the layers under `through` from x and returns the gradient of all parameters.
func (m *checkpointModel) gradient(x func() Tensor, through func(Tensor, func(Tensor) Tensor) Tensor) []float64 {
	defer Scope()()
	m.params.ZeroGrad()
	h := x()
	for _, name := range []string{"w0", "w1", "w2"} {
		inner := Scope() // a layer's own scope ends before Backward
		h = Keep(through(h, m.layer(name)))
		inner()
	}
	Backward(Sum(Square(h)))
	return m.params.Grad().Floats()
}

func plain(x Tensor, f func(Tensor) Tensor) Tensor { return f(x) }

func TestCheckpointIsThePlainGradient(t *testing.T) {
	scoped(t)
	m := newCheckpointModel(t)
	ids := From([]int64{3, 0, 3}, 3)
	for name, x := range map[string]func() Tensor{
		"an input without gradient": func() Tensor { return Full(0.5, 3, 6) },
		"an input with history":     func() Tensor { return Embedding(m.params.Get("table"), ids) },
		"a leaf":                    func() Tensor { return RequireGrad(Full(0.25, 3, 6)) },
	} {
		t.Run(name, func(t *testing.T) {
			want := m.gradient(x, plain)
			m.runs = 0
			got := m.gradient(x, Checkpoint)
			if !slices.Equal(got, want) {
				t.Errorf("gradient %v, want %v", got, want)
			}
			if m.runs != 6 {
				t.Errorf("the layers ran %d times, want 3 forward and 3 again", m.runs)
			}
			if len(tape) != 0 {
				t.Errorf("%d segments left", len(tape))
			}
			nested := m.gradient(x, func(x Tensor, f func(Tensor) Tensor) Tensor {
				return Checkpoint(x, func(x Tensor) Tensor { return Checkpoint(x, f) })
			})
			if !slices.Equal(nested, want) {
				t.Errorf("nested: gradient %v, want %v", nested, want)
			}
		})
	}
}

func TestCheckpointOfTwoLosses(t *testing.T) {
	scoped(t)
	m := newCheckpointModel(t)
	x := Full(0.5, 3, 6)
	run := func(through func(Tensor, func(Tensor) Tensor) Tensor) []float64 {
		defer Scope()()
		m.params.ZeroGrad()
		a, b := through(x, m.layer("w0")), through(x, m.layer("w1"))
		Backward(Sum(a)) // b's segment waits for its own
		Backward(Sum(Square(b)))
		return m.params.Grad().Floats()
	}
	want := run(plain)
	if got := run(Checkpoint); !slices.Equal(got, want) {
		t.Errorf("gradient %v, want %v", got, want)
	}
}

func TestCheckpointIsForgotten(t *testing.T) {
	scoped(t)
	m := newCheckpointModel(t)
	outer := Scope()
	inner := Scope()
	Checkpoint(Checkpoint(Full(0.5, 3, 6), m.layer("w0")), m.layer("w1"))
	inner() // nothing holds the result
	if len(tape) != 0 {
		t.Errorf("%d segments outlived their scope", len(tape))
	}
	inner = Scope()
	y := Keep(Tanh(Checkpoint(Full(0.5, 3, 6), m.layer("w0")))) // held by the graph alone
	inner()
	if len(tape) != 1 {
		t.Errorf("%d segments, want the one that a kept result needs", len(tape))
	}
	m.params.ZeroGrad()
	Backward(Sum(y))
	if m.params.GradNorm() == 0 {
		t.Error("no gradient through a kept result")
	}
	outer()
	end := NoGrad()
	Checkpoint(Full(0.5, 3, 6), m.layer("w0"))
	end()
	if len(tape) != 0 {
		t.Errorf("%d segments without a gradient", len(tape))
	}
}
