package lora

import (
	"slices"

	"fulcrum/internal/list"
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

// As returns the layer with its weights and its adapter in a type of computation, for passes without gradient.
func (l Layer) As(dtype torchx.DType) Layer {
	for _, w := range []*torchx.Tensor{&l.Weight, &l.Bias, &l.a, &l.b} {
		*w = weights.As(*w, dtype)
	}
	return l
}

// Group joins layers that read the same rows, with concatenated weights: one product computes all of them.
type Group struct {
	Layer  // [Σ out, in]; its adapter, where As has made it, is that of all parts
	Parts  []*Layer
	merged bool // the joined adapter is made, or no part has one
}

// Apply returns the parts' results beside each other [n, Σ out], as Layer.Apply does.
func (g *Group) Apply(x torchx.Tensor, dtype torchx.DType, p *Pass) torchx.Tensor {
	if g.merged {
		return g.Layer.Apply(x, dtype, &Pass{})
	}
	if p.Dropout > 0 && g.adapted() { // each adapter drops its own
		return torchx.Cat(1, list.Map(g.Parts, func(l *Layer) torchx.Tensor { return l.Apply(x, dtype, p) })...)
	}
	all := g.Layer
	all.a, all.b, all.scale = g.adapter()
	return all.Apply(x, dtype, &Pass{})
}

func (g *Group) adapted() bool {
	return slices.ContainsFunc(g.Parts, func(l *Layer) bool { return !l.a.Nil() })
}

// adapter returns the parts' adapters as one: their A stacked [Σ r, in] and their scaled B on a block diagonal [Σ out, Σ r].
func (g *Group) adapter() (a, b torchx.Tensor, scale float64) {
	if !g.adapted() {
		return a, b, 0
	}
	var down, up []torchx.Tensor
	for _, l := range g.Parts {
		if l.a.Nil() { // rows of zeros
			up = append(up, torchx.FullLike(l.Weight, 0, torchx.Float32, l.Weight.Shape()[0], 0))
			continue
		}
		down, up = append(down, l.a), append(up, torchx.Scale(l.b, l.scale))
	}
	return torchx.Cat(0, down...), torchx.BlockDiag(up...), 1
}

// As returns the group in a type of computation with one adapter, for passes without gradient.
func (g *Group) As(dtype torchx.DType) *Group {
	if g == nil {
		return nil
	}
	all := g.Layer
	all.a, all.b, all.scale = g.adapter()
	return &Group{Layer: all.As(dtype), Parts: g.Parts, merged: true}
}

// Pass holds a forward pass's settings beside its input. The zero value computes without dropout.
type Pass struct {
	Dropout   float64           // on the adapters' input
	Seed      uint64            // of the dropout masks
	Generator *torchx.Generator // nil without dropout
	Queries   []int             // names of the queries that the input's rows belong to, in order

	rows   []int // rows of each query
	memory *Pass // over the encoder's rows, for layers that read both
}

// Over returns the pass over an input with the given rows of each query, in order. Dropout masks depend on the seed, the
// layer, the query and its rows alone, not on the other queries of the batch.
func (p *Pass) Over(rows []int) *Pass {
	q := *p
	q.rows = rows
	return &q
}

// With returns a decoder's pass over its own rows, whose Memory is one over the encoder's.
func (p *Pass) With(memory *Pass) *Pass {
	q := *p
	q.memory = memory
	return &q
}

// Memory returns the pass over the encoder's rows.
func (p *Pass) Memory() *Pass {
	if p.memory == nil {
		return p
	}
	return p.memory
}

// Times returns the pass over an input of n rows for each of this one's.
func (p *Pass) Times(n int) *Pass {
	return p.Over(list.Map(p.rows, func(r int) int { return r * n }))
}

// Apply returns x·Wᵀ + bias plus the adapter's share [n, out] of rows x [n, in], computed in dtype. Weights that are trained
// in float32 are rounded to dtype here, with gradient.
func (l *Layer) Apply(x torchx.Tensor, dtype torchx.DType, p *Pass) torchx.Tensor {
	weight, bias := weights.As(l.Weight, dtype), weights.As(l.Bias, dtype)
	if l.a.Nil() {
		return torchx.Linear(x, weight, bias)
	}
	if p.Dropout == 0 {
		return torchx.LoRALinear(x, weight, bias, l.a, l.b, l.scale)
	}
	dropped := p.Generator.DropoutRows(x.To(torchx.Float32), p.Dropout, p.rows, func(i int) uint64 {
		return rng.Key(int64(p.Seed), "lora dropout", l.stream, p.Queries[i]) // the same mask when a checkpointed layer runs again
	})
	low := torchx.Linear(torchx.Linear(dropped, l.a, torchx.Tensor{}), l.b, torchx.Tensor{})
	return torchx.Add(torchx.Linear(x, weight, bias), torchx.Scale(low, l.scale).To(x.DType()))
}
