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

// Group returns linear layers that read the same rows. If the weights are Joined and frozen it also returns all of them as one
// layer; else nil.
func (b *Builder) Group(in int, bias bool, parts ...lora.Linear) (layers []*lora.Layer, group *lora.Group) {
	if b.weights != nil && b.weights.Joined {
		group = &lora.Group{}
		group.Weight = b.weights.join(".weight", parts)
		if bias {
			group.Bias = b.weights.join(".bias", parts)
		}
	}
	for _, part := range parts {
		l := b.Linear(part.Name, in, part.Out, bias)
		layers = append(layers, &l)
	}
	if group == nil || group.Weight.Nil() || bias && group.Bias.Nil() {
		return layers, nil
	}
	group.Parts = layers
	return layers, group
}

// Padded returns linear layers with biases. If the weights are Joined, frozen and not adapted, rows and columns are padded with zeros to a
// multiple of 8: products whose rows are not aligned to 16 bytes take three times as long on a GPU.
func (b *Builder) Padded(parts ...lora.Linear) (layers []lora.Layer) {
	frozen := b.weights != nil && b.weights.Joined
	for _, part := range parts {
		layers = append(layers, b.Linear(part.Name, part.In, part.Out, true))
		if frozen {
			_, adapted := b.weights.modules[part.Name]
			frozen = !adapted && !b.weights.params.Has(part.Name+".weight")
		}
	}
	for i, part := range parts {
		if in, out := (part.In+7)/8*8, (part.Out+7)/8*8; frozen {
			layers[i].Weight = b.weights.frozen.Pad(part.Name+".weight", out, in)
			layers[i].Bias = b.weights.frozen.Pad(part.Name+".bias", out)
		}
	}
	return layers
}

// join concatenates the frozen tensors of some layers; undefined if one of them is trained.
func (w *Weights) join(suffix string, parts []lora.Linear) torchx.Tensor {
	names := make([]string, len(parts))
	for i, part := range parts {
		names[i] = part.Name + suffix
		if w.params.Has(names[i]) {
			return torchx.Tensor{}
		}
	}
	return w.frozen.Join(names...)
}
