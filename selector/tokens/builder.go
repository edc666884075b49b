package tokens

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
)

// Builder hands a network its tensors, and lists them in the order in which they are asked for. The zero value only lists:
// a network is put together by one function, first to know what its folder holds, then with the weights.
type Builder struct {
	Specs   []torchx.Spec
	weights *Weights
}

// Builder returns one that has the weights.
func (w *Weights) Builder() *Builder { return &Builder{weights: w} }

// Tensor returns a tensor; undefined where the builder only lists.
func (b *Builder) Tensor(name string, shape ...int) torchx.Tensor {
	b.Specs = append(b.Specs, torchx.Spec{Name: name, Shape: shape})
	if b.weights == nil {
		return torchx.Tensor{}
	}
	return b.weights.Weight(name)
}

// Linear returns a linear layer with its adapter.
func (b *Builder) Linear(name string, in, out int, bias bool) lora.Layer {
	l := lora.Layer{Weight: b.Tensor(name+".weight", out, in)}
	if bias {
		l.Bias = b.Tensor(name+".bias", out)
	}
	if b.weights == nil {
		return l
	}
	if m, ok := b.weights.modules[name]; ok {
		l.Adapt(m, b.weights.params)
	}
	return l
}
