package pointer

import (
	"fmt"
	"slices"
	"unsafe"

	"fulcrum/beamdata"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// inputs is a batch on the device. Pools of different sizes are padded to the largest, K.
type inputs struct {
	b, g, t, k int
	queries    []int         // [B]
	pools      [][]int32     // [B] the table's rows that are each query's candidates
	rows       torchx.Tensor // [U+B, d] embedding rows: the U distinct candidates of the batch, then the B queries
	candidates []int64       // [U] their rows in the table
	u          int           // U; equal to K where all queries share one pool
	pool       torchx.Tensor // [B, K] int64 positions in the first U rows (padding points at row 0); no tensor when the pool is shared
	padding    torchx.Tensor // [B, K] bool, true = padding; no tensor when all pools are full
	cos        torchx.Tensor // [B, K] cos(E_q, E_j); no tensor without the skip term
	actions    torchx.Tensor // [B, G, T] int64 columns of the logits
	chosen     torchx.Tensor // [B, G, T] int64 positions in the pool; not the same as actions only where those may stop
	mask       torchx.Tensor // [B, G, T] float, 1 = a scored step; no tensor when every step is
}

// load moves what a forward pass needs to the device.
func (p *Policy) load(b *selector.Batch) *inputs {
	src := b.Source.(*Source)
	in := p.loadQueries(src, b.Queries)
	in.g, in.t = b.G, b.T
	p.checkActions(b, in)
	actions, chosen := p.columns(b.Actions, in.k)
	in.actions = p.move(torchx.From(actions, in.b, in.g, in.t))
	in.chosen = in.actions
	if p.opt.Stop.Enabled {
		in.chosen = p.move(torchx.From(chosen, in.b, in.g, in.t))
	}
	if slices.Contains(b.Mask, 0) {
		in.mask = p.move(torchx.From(b.Mask, in.b, in.g, in.t)).To(p.dtype)
	}
	return in
}

// checkActions refuses positions outside a query's pool, which libtorch would not catch on every device.
func (p *Policy) checkActions(b *selector.Batch, in *inputs) {
	for at, action := range b.Actions {
		i := at / (b.G * b.T)
		if action >= 0 && action < int64(len(in.pools[i])) || action == Stop && p.opt.Stop.Enabled {
			continue
		}
		panic(&torchx.OpError{Op: "pointer.forward", Msg: fmt.Sprintf("query %d: position %d is outside its pool of %d candidates",
			b.Source.ID(b.Queries[i]), action, len(in.pools[i]))})
	}
}

func (p *Policy) loadQueries(src *Source, queries []int) *inputs {
	in := &inputs{b: len(queries), queries: queries}
	shared := true
	first := src.set.Pool(queries[0])
	for _, q := range queries {
		pool := src.set.Pool(q)
		in.k, in.pools = max(in.k, len(pool)), append(in.pools, pool)
		shared = shared && len(pool) == len(first) && unsafe.SliceData(pool) == unsafe.SliceData(first)
	}
	var rows []int64
	if shared {
		rows = make([]int64, 0, in.k+in.b)
		for _, row := range first {
			rows = append(rows, int64(row))
		}
	} else {
		rows = in.place(p, src, queries)
	}
	in.u = len(rows)
	in.candidates = rows[:in.u:in.u]
	for _, q := range queries {
		rows = append(rows, int64(src.set.Row(q)))
	}
	in.rows = torchx.IndexSelect(p.table(src), 0, p.move(torchx.From(rows, len(rows)))).To(p.dtype) // [U+B, d]
	if p.opt.Skip.Enabled {
		cos := make([]float32, in.b*in.k)
		for i, q := range queries {
			copy(cos[i*in.k:], src.cosines(q))
		}
		in.cos = p.move(torchx.From(cos, in.b, in.k)).To(p.dtype)
	}
	return in
}

// place lists the distinct candidates of different pools, which are projected once, and fills pool and padding.
func (in *inputs) place(p *Policy, src *Source, queries []int) (rows []int64) {
	slot := p.tables.slots(src.set.Table)
	pool := make([]int64, in.b*in.k)
	padding := make([]bool, in.b*in.k)
	padded := false
	for i, q := range queries {
		own := src.set.Pool(q)
		for j, row := range own {
			at, ok := slot.get(row)
			if !ok {
				at = int64(len(rows))
				slot.set(row, at)
				rows = append(rows, int64(row))
			}
			pool[i*in.k+j] = at
		}
		for j := len(own); j < in.k; j++ {
			padding[i*in.k+j], padded = true, true
		}
	}
	in.pool = p.move(torchx.From(pool, in.b, in.k))
	if padded {
		in.padding = p.move(torchx.From(padding, in.b, in.k))
	}
	return rows
}

// products multiplies vectors x [B, N, h] with every candidate's c ([B, K, h], or [K, h] shared): [B, N, K].
func products(x, c torchx.Tensor) torchx.Tensor {
	return torchx.MatMul(x, torchx.Transpose(c, -2, -1))
}

// slots remembers where a table's rows stand in a batch, without clearing anything between batches.
type slots struct {
	at    []int64
	stamp []uint32
	now   uint32
}

func (s *slots) get(row int32) (int64, bool) { return s.at[row], s.stamp[row] == s.now }

func (s *slots) set(row int32, at int64) { s.at[row], s.stamp[row] = at, s.now }

// slots returns the table's slots, empty.
func (t *tables) slots(table *beamdata.Table) *slots {
	s := t.slot[table]
	if s == nil {
		s = &slots{at: make([]int64, table.Rows), stamp: make([]uint32, table.Rows)}
		t.slot[table] = s
	}
	s.now++
	if s.now == 0 { // the stamps have gone round
		clear(s.stamp)
		s.now = 1
	}
	return s
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
