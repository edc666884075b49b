package torchx

import (
	"testing"
)

func TestSmoke(t *testing.T) {
	scoped(t)
	x := From([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 1, 4)
	Attend(x, x, x, []Span{{Q: 0, QLen: 2, Own: 0, OwnLen: 2, Causal: true}}, 0.5)
	p := NewParams([]Spec{{"w", []int{4}}}, "cpu")
	defer p.Free()
	x = Reshape(x, 2, 4)
	h := Checkpoint(x, func(x Tensor) Tensor { return RMSNorm(x, p.Get("w"), 1e-6) })
	h = Checkpoint(h, func(x Tensor) Tensor { return RMSNorm(Add(x, p.Get("w")), p.Get("w"), 1e-6) })
	Backward(Sum(Exp(h)))
	t.Log(p.Grad().Floats(), SampleTokens(x, SampleOptions{TopK: 2, TopP: .9}, nil, nil, []float64{.1, .9}))
}
