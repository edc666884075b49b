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
	Queries   []int             // names of the queries that the input's rows belong to, in order

	rows   []int // how many rows each query has
	memory *Pass // over the encoder's rows, for layers that read both
}

// Over returns the pass over an input of so many rows a query, in their order. Dropout masks depend on the seed, the
// layer, the query and the rows of that query alone: not on which other queries are computed with it.
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
	rows := make([]int, len(p.rows))
	for i, r := range p.rows {
		rows[i] = r * n
	}
	return p.Over(rows)
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
	dropped := p.Generator.DropoutRows(x.To(torchx.Float32), p.Dropout, p.rows, func(i int) uint64 {
		return rng.Key(int64(p.Seed), "lora dropout", l.stream, p.Queries[i]) // the same mask when a checkpointed layer runs again
	})
	low := torchx.Linear(torchx.Linear(dropped, l.a, torchx.Tensor{}), l.b, torchx.Tensor{})
	return torchx.Add(torchx.Linear(x, weight, bias), torchx.Scale(low, l.scale).To(x.DType()))
}
