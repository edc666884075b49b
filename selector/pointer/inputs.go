package pointer

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// inputs is a batch on the device. Pools of different sizes are padded to the largest, K.
type inputs struct {
	b, g, t, k int
	rows       torchx.Tensor // [U, d] the distinct embedding rows of the batch: shared candidates are projected once
	query      torchx.Tensor // [B] int64 positions in rows
	pool       torchx.Tensor // [B, K] int64 positions in rows (padding points at row 0)
	padding    torchx.Tensor // [B, K] bool, true = padding; no tensor when all pools are full
	cos        torchx.Tensor // [B, K] cos(E_q, E_j); no tensor without the skip term
	actions    torchx.Tensor // [B, G, T] int64
	mask       torchx.Tensor // [B, G, T] float, 1 = a scored step
}

// load moves what a forward pass needs to the device.
func (p *Policy) load(b *selector.Batch) *inputs {
	src := b.Source.(*Source)
	in := p.loadQueries(src, b.Queries)
	in.g, in.t = b.G, b.T
	in.actions = p.move(torchx.From(b.Actions, in.b, in.g, in.t))
	in.mask = p.move(torchx.From(b.Mask, in.b, in.g, in.t))
	return in
}

func (p *Policy) loadQueries(src *Source, queries []int) *inputs {
	in := &inputs{b: len(queries)}
	for _, q := range queries {
		in.k = max(in.k, len(src.set.Pool(q)))
	}
	slot := make(map[int32]int64, in.b*in.k)
	var distinct []int64
	place := func(row int32) int64 {
		at, ok := slot[row]
		if !ok {
			at = int64(len(distinct))
			slot[row] = at
			distinct = append(distinct, int64(row))
		}
		return at
	}
	query := make([]int64, in.b)
	pool := make([]int64, in.b*in.k)
	padding := make([]bool, in.b*in.k)
	padded := false
	for i, q := range queries {
		query[i] = place(src.set.Row(q))
		rows := src.set.Pool(q)
		for j := range in.k {
			if j < len(rows) {
				pool[i*in.k+j] = place(rows[j])
			} else {
				padding[i*in.k+j] = true
				padded = true
			}
		}
	}
	table := p.table(src)
	in.rows = torchx.IndexSelect(table, 0, p.move(torchx.From(distinct, len(distinct)))) // [U, d]
	in.query = p.move(torchx.From(query, in.b))
	in.pool = p.move(torchx.From(pool, in.b, in.k))
	if padded {
		in.padding = p.move(torchx.From(padding, in.b, in.k))
	}
	if p.opt.Skip.Enabled {
		cos := make([]float32, in.b*in.k)
		for i, q := range queries {
			copy(cos[i*in.k:], src.cosines(q))
		}
		in.cos = p.move(torchx.From(cos, in.b, in.k))
	}
	return in
}

// table returns the source's embedding table on the policy's device, uploaded once.
func (p *Policy) table(src *Source) torchx.Tensor {
	t := src.set.Table
	if dev, ok := p.tables.on[t]; ok {
		return dev
	}
	host := torchx.FromStatic(t.Data, t.Rows, t.Dim) // the Table outlives the policy: p.tables keeps it
	dev := host
	if p.device != "cpu" {
		dev = host.ToDevice(p.device)
	}
	p.tables.on[t] = torchx.Own(dev)
	return dev
}

func (p *Policy) move(t torchx.Tensor) torchx.Tensor {
	if p.device == "cpu" {
		return t
	}
	return t.ToDevice(p.device)
}
