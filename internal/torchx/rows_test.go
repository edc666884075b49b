package torchx

import (
	"fmt"
	"math"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/testkit/golden"
)

// pickCase is a batch of rows for PickLogp: B queries, G candidates, T steps, K actions.
type pickCase struct {
	b, g, t, k, r int
	logits        []float64 // [B, R, K]
	ref           []float64 // [B, G, T, K]
	actions       []int64   // [B, G, T]
	weight        []float64 // [B, G, T] of the log-probabilities in the test's scalar
	weightKL      []float64
}

func newPickCase(b, g, t, k int, shared bool) pickCase {
	c := pickCase{b: b, g: g, t: t, k: k, r: t * g}
	if shared {
		c.r = 1 + (t-1)*g
	}
	r := rng.New(7, fmt.Sprint("pick ", b, g, t, k))
	for range b * c.r * k {
		c.logits = append(c.logits, 3*r.NormFloat64())
	}
	for i := range b * g * t * k { // the candidates of a query share the first step's
		if from := i - t*k; shared && i/k%t == 0 && i/(t*k)%g > 0 {
			c.ref = append(c.ref, c.ref[from])
		} else {
			c.ref = append(c.ref, 2*r.NormFloat64()-3)
		}
	}
	for range b * g {
		for _, a := range r.Perm(k)[:t] {
			c.actions = append(c.actions, int64(a))
			c.weight, c.weightKL = append(c.weight, r.NormFloat64()), append(c.weightKL, r.NormFloat64())
		}
	}
	return c
}

// row is where the scores of step t of candidate g stand.
func (c pickCase) row(t, g int) int {
	if c.r == c.t*c.g {
		return t*c.g + g
	}
	if t == 0 {
		return 0
	}
	return 1 + (t-1)*c.g + g
}

// plain computes log π, entropy and KL by loops, and Σ weight·log π + weightKL·KL.
func (c pickCase) plain(logits []float64, taken float64) (logp, entropy, kl []float64, sum float64) {
	for b := range c.b {
		for g := range c.g {
			for t := range c.t {
				at := (b*c.r + c.row(t, g)) * c.k
				z := append([]float64(nil), logits[at:at+c.k]...)
				act := c.actions[(b*c.g+g)*c.t : (b*c.g+g)*c.t+c.t]
				for _, a := range act[:t] {
					z[a] = taken
				}
				total := 0.0
				for _, x := range z {
					total += math.Exp(x)
				}
				var h, d float64
				for j, x := range z {
					lp := x - math.Log(total)
					h -= math.Exp(lp) * lp
					d += math.Exp(lp) * (lp - c.ref[len(logp)*c.k+j])
				}
				i := len(logp)
				logp, entropy, kl = append(logp, z[act[t]]-math.Log(total)), append(entropy, h), append(kl, d)
				sum += c.weight[i]*logp[i] + c.weightKL[i]*d
			}
		}
	}
	return logp, entropy, kl, sum
}

func TestPickLogP(t *testing.T) {
	scoped(t)
	const taken = -40 // small enough to be seen in float64, as -100 is not
	for _, c := range []pickCase{
		newPickCase(1, 1, 1, 3, true), newPickCase(2, 3, 2, 5, true), newPickCase(2, 3, 3, 8, true), newPickCase(1, 4, 2, 19, true),
		newPickCase(2, 2, 3, 11, false),
	} {
		t.Run(fmt.Sprint(c.b, c.g, c.t, c.k, c.r), func(t *testing.T) {
			defer Scope()()
			logp, entropy, kl, _ := c.plain(c.logits, taken)
			actions := From(c.actions, c.b, c.g, c.t)
			for _, as := range []struct {
				dtype DType
				tol   float64
			}{{Float64, 1e-12}, {Float32, 3e-5}} {
				x := From(c.logits, c.b, c.r, c.k).To(as.dtype)
				got := PickLogp(x, actions, taken, From(c.ref, c.b, c.g, c.t, c.k).To(as.dtype))
				golden.Close(t, got.LogP.Floats(), logp, as.tol)
				golden.Close(t, got.Entropy.Floats(), entropy, as.tol)
				golden.Close(t, got.KL.Floats(), kl, as.tol)
				golden.Close(t, x.Floats(), From(c.logits, c.b, c.r, c.k).To(as.dtype).Floats(), 0) // its input stays as it is
				if !PickLogp(x, actions, taken, Tensor{}).KL.Nil() {
					t.Error("KL without a reference")
				}
			}
		})
	}
}

// TestPickLogPGradients compares the fused gradient with central differences of the plain loops, and the
// float32 kernel with the float64 one.
func TestPickLogPGradients(t *testing.T) {
	scoped(t)
	const taken = -40
	for _, c := range []pickCase{newPickCase(2, 3, 2, 5, true), newPickCase(1, 2, 3, 19, true), newPickCase(2, 2, 2, 8, false)} {
		gradient := func(dtype DType, kl bool) []float64 {
			defer Scope()()
			x := RequireGrad(From(c.logits, c.b, c.r, c.k).To(dtype))
			ref := Tensor{}
			if kl {
				ref = From(c.ref, c.b, c.g, c.t, c.k).To(dtype)
			}
			p := PickLogp(x, From(c.actions, c.b, c.g, c.t), taken, ref)
			loss := Sum(Mul(p.LogP, From(c.weight, c.b, c.g, c.t).To(dtype)))
			if kl {
				loss = Add(loss, Sum(Mul(p.KL, From(c.weightKL, c.b, c.g, c.t).To(dtype))))
			}
			Backward(loss)
			return Grad(x).Floats()
		}
		for _, kl := range []bool{false, true} {
			plain := c
			if !kl {
				plain.weightKL = make([]float64, len(c.weightKL))
			}
			want := make([]float64, len(c.logits))
			const h = 1e-6
			for i := range want {
				y := append([]float64(nil), c.logits...)
				y[i] += h
				_, _, _, hi := plain.plain(y, taken)
				y[i] -= 2 * h
				_, _, _, lo := plain.plain(y, taken)
				want[i] = (hi - lo) / (2 * h)
			}
			golden.Close(t, gradient(Float64, kl), want, 1e-7)
			golden.Close(t, gradient(Float32, kl), want, 5e-5)
		}
	}
}

func maxAbs(x []float64) float64 {
	m := 0.0
	for _, v := range x {
		m = max(m, math.Abs(v))
	}
	return m
}

// TestParameterGradients checks gradients that go straight into a parameter's buffer, whole or in parts,
// against central differences.
func TestParameterGradients(t *testing.T) {
	scoped(t)
	specs := []Spec{{"w", []int{4, 3}}, {"b", []int{4}}, {"wide", []int{3, 8}}, {"square", []int{4, 4}}}
	p := NewParamsOf(Float64, specs, "cpu")
	defer p.Free()
	r := rng.New(3, "parameters")
	at := make([]float64, p.Numel())
	for i := range at {
		at[i] = r.NormFloat64()
	}
	input := make([]float64, 2*5*3)
	for i := range input {
		input[i] = r.NormFloat64()
	}
	loss := func() Tensor {
		x := From(input, 2, 5, 3)
		y := Tanh(Linear(x, p.Get("w"), p.Get("b")))                                                          // [2, 5, 4]
		y = Add(LinearT(y, p.Get("square")), Linear(y, p.Get("square"), Tensor{}))                            // used twice
		left := Linear(y, p.Part("wide", 1, 0, 4), Tensor{})                                                  // [2, 5, 3]
		right := Linear(Narrow(y, 1, 0, 1), p.Part("wide", 1, 4, 4), Tensor{})                                // [2, 1, 3]
		return Add(Sum(Tanh(Add(left, right))), Sum(Square(Mul(p.Part("b", 0, 1, 2), p.Part("b", 0, 1, 2))))) // no Linear
	}
	set := func(v []float64) { Copy(p.Flat(), From(v, len(v))) }
	set(at)
	p.ZeroGrad()
	Backward(loss())
	got := p.Grad().Floats()
	want := make([]float64, len(at))
	const h = 1e-6
	for i := range at {
		func() {
			defer Scope()()
			y := append([]float64(nil), at...)
			y[i] += h
			set(y)
			hi := loss().Item()
			y[i] -= 2 * h
			set(y)
			want[i] = (hi - loss().Item()) / (2 * h)
		}()
	}
	golden.Close(t, got, want, 1e-7)
	set(at)
	Backward(loss()) // gradients add up
	for i := range want {
		want[i] *= 2
	}
	golden.Close(t, p.Grad().Floats(), want, 1e-7)
	p.ZeroGrad()
	if g := maxAbs(p.Grad().Floats()); g != 0 {
		t.Errorf("a cleared gradient holds %v", g)
	}
}

func TestAdamWClearsTheGradient(t *testing.T) {
	scoped(t)
	p := NewParams([]Spec{{"w", []int{40}}}, "cpu")
	defer p.Free()
	opt := NewAdamW(p, 0.9, 0.999, 1e-8, 0)
	defer opt.Free()
	for _, keep := range []bool{true, false} {
		opt.KeepGrad = keep
		p.ZeroGrad()
		Copy(p.Grad(), Full(2, 40))
		opt.Step(0.1, 1)
		if kept := maxAbs(p.Grad().Floats()) == 2; kept != keep {
			t.Errorf("KeepGrad=%v: the gradient afterwards is %v", keep, p.Grad().Floats()[0])
		}
		p.ZeroGrad()
		if g := maxAbs(p.Grad().Floats()); g != 0 {
			t.Errorf("KeepGrad=%v: a cleared gradient holds %v", keep, g)
		}
	}
}
