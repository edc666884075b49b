package lora

import (
	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/selector/weights"
)

// Layer is a linear layer of a model: its weights, and its adapter where it has one.
type Layer struct {
	Weight, Bias torchx.Tensor // [out, in]; [out] or none

	a, b   torchx.Tensor // [r, in], [out, r], or none
	scale  float64
	stream int // names the layer's dropout masks
}

// Adapt gives the layer its adapter, whose matrices are among params.
func (l *Layer) Adapt(m Module, params *torchx.Params) {
	l.a, l.b, l.scale = params.Get(KeyA(m.Name)), params.Get(KeyB(m.Name)), m.Scale
	l.stream, _ = params.Range(KeyA(m.Name))
}

// Pass is what a forward pass is told beside its input. The zero value computes without dropout.
type Pass struct {
	Dropout   float64           // on the adapters' input
	Seed      uint64            // of the dropout masks
	Generator *torchx.Generator // nil without dropout
}

// Apply returns x·Wᵀ + bias and the adapter's share [n, out] of rows x [n, in] in dtype, the type of computation. Weights
// that are trained in float32 under another one are rounded here, with gradient.
func (l *Layer) Apply(x torchx.Tensor, dtype torchx.DType, p *Pass) torchx.Tensor {
	weight, bias := weights.As(l.Weight, dtype), weights.As(l.Bias, dtype)
	if l.a.Nil() {
		return torchx.Linear(x, weight, bias)
	}
	if p.Dropout == 0 {
		return torchx.LoRALinear(x, weight, bias, l.a, l.b, l.scale)
	}
	p.Generator.Seed(rng.Key(int64(p.Seed), "lora dropout", l.stream)) // the same masks when a checkpointed layer runs again
	dropped := p.Generator.Dropout(x.To(torchx.Float32), p.Dropout)
	low := torchx.Linear(torchx.Linear(dropped, l.a, torchx.Tensor{}), l.b, torchx.Tensor{})
	return torchx.Add(torchx.Linear(x, weight, bias), torchx.Scale(low, l.scale).To(x.DType()))
}
