package vl

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

func (m *Model) newLinear(name string, bias bool) lora.Layer {
	l := lora.Layer{Weight: m.weight(name + ".weight")}
	if bias {
		l.Bias = m.weight(name + ".bias")
	}
	if a, ok := m.modules[name]; ok {
		l.Adapt(a, m.params)
	}
	return l
}

// apply returns x·Wᵀ + bias and the adapter's share.
func (m *Model) apply(l *lora.Layer, x torchx.Tensor, p *lora.Pass) torchx.Tensor {
	return l.Apply(x, m.dtype, p)
}

// as returns a weight, which may be no tensor, in the type of computation.
func (m *Model) as(w torchx.Tensor) torchx.Tensor { return weights.As(w, m.dtype) }
