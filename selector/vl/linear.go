package vl

import (
	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// linear is a layer's weights: [out, in] and [out] or none, and its adapter where it has one.
type linear struct {
	weight, bias torchx.Tensor
	a, b         torchx.Tensor // [r, in], [out, r], or none
	scale        float64
	stream       int // names the layer's dropout masks
}

func (m *Model) newLinear(name string, bias bool) linear {
	l := linear{weight: m.weight(name + ".weight")}
	if bias {
		l.bias = m.weight(name + ".bias")
	}
	if a, ok := m.modules[name]; ok {
		l.a, l.b, l.scale = m.params.Get(lora.KeyA(name)), m.params.Get(lora.KeyB(name)), a.Scale
		l.stream, _ = m.params.Range(lora.KeyA(name))
	}
	return l
}

// pass is what a forward pass is told beside its input.
type pass struct {
	dropout   float64           // on the adapters' input
	seed      uint64            // of the dropout masks
	generator *torchx.Generator // nil without dropout
}

// apply returns x·Wᵀ + bias and the adapter's share. Weights that are trained in float32 under another type of
// computation are rounded here, with gradient.
func (m *Model) apply(l *linear, x torchx.Tensor, p *pass) torchx.Tensor {
	weight, bias := m.as(l.weight), m.as(l.bias)
	if l.a.Nil() {
		return torchx.Linear(x, weight, bias)
	}
	if p.dropout == 0 {
		return torchx.LoRALinear(x, weight, bias, l.a, l.b, l.scale)
	}
	p.generator.Seed(rng.Key(int64(p.seed), "lora dropout", l.stream)) // the same masks when a checkpointed layer runs again
	dropped := p.generator.Dropout(x.To(torchx.Float32), p.dropout)
	low := torchx.Linear(torchx.Linear(dropped, l.a, torchx.Tensor{}), l.b, torchx.Tensor{})
	return torchx.Add(torchx.Linear(x, weight, bias), torchx.Scale(low, l.scale).To(x.DType()))
}

// as returns a weight, which may be no tensor, in the type of computation.
func (m *Model) as(w torchx.Tensor) torchx.Tensor { return weights.As(w, m.dtype) }
