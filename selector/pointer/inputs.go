package pointer

import (
	"fmt"
	"slices"
	"unsafe"

	"fulcrum/beamdata"
	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// inputs is a batch on the device. Pools of different sizes are padded to the largest, K.
type inputs struct {
	b, g, t, k int
	queries    []int     // [B]
	pools      [][]int32 // [B] each query's candidates, as rows of the table
	src        *Source
	wanted     []int64         // [U+B] rows of the table
	index      torchx.Tensor   // [U+B] int64 the same on the device
	rows       torchx.Tensor   // [U+B, d] embedding rows: the U distinct candidates of the batch, then the B queries
	candidates []int64         // [U] their rows in the table
	u          int             // U; equal to K where all queries share one pool
	pool       torchx.Tensor   // [B, K] int64 positions in the first U rows (padding points at row 0); undefined when the pool is shared
	padding    torchx.Tensor   // [B, K] bool, true = padding; undefined when all pools are full
	kernels    bool            // torchx.PoolAttend and PoolScore read the candidates where they are
	places     torchx.Pool     // for them
	cos        torchx.Tensor   // [B, K] cos(E_q, E_j); undefined without the skip term
	features   torchx.Tensor   // [B, K, columns] what is known about candidates; undefined without selector.features
	beside     []torchx.Tensor // [T-1] × [B, G, K, columns] the same beside each choice; nil where it is read on the way
	actions    torchx.Tensor   // [B, G, T] int64 columns of the logits
	chosen     torchx.Tensor   // [B, G, T] int64 positions in the pool; differs from actions only if an action may stop
	mask       torchx.Tensor   // [B, G, T] float, 1 = a scored step; undefined when every step is

	// Where pairs outnumber the pool, as with rollout=enumerated, the second step is scored once for each first choice: N = K instead of G.
	first torchx.Tensor // [B, K, 2] int64 every position, and a second that nothing reads; undefined elsewhere
	row   torchx.Tensor // [B·(1+G)] int64 the candidates' rows among the B·(1+K) that are scored
}

// stageFirst returns the N selections of a query whose steps are scored [B, N, T]: those of the batch or, where they are fewer, one for
// each first choice, which it puts on their way.
func (p *Policy) stageFirst(in *inputs, b *selector.Batch, up *torchx.Upload) (actions []int64, n int) {
	if in.t != 2 || in.g <= in.k || p.opt.Stop.Enabled {
		return b.Actions, in.g
	}
	var first, row []int64
	for i := range in.b {
		for at := range int64(in.k) {
			first = append(first, min(at, int64(len(in.pools[i])-1)), 0) // nothing reads what follows padding
		}
		from := int64(i * (1 + in.k))
		row = append(row, from)
		for g := range in.g {
			row = append(row, from+1+b.Actions[(i*in.g+g)*2])
		}
	}
	torchx.Put(up, &in.first, first, in.b, in.k, 2)
	torchx.Put(up, &in.row, row, len(row))
	return first, in.k
}

// attends reports whether a kernel computes the cross-attention. For large shared pools matrix products are faster.
func (in *inputs) attends(drop dropout) bool {
	const large = 128
	return in.kernels && drop.attn == 0 && (!in.pool.Nil() || in.k <= large)
}

// stage adds a batch's numbers for a forward pass to up. Once up is sent, arrived makes the tensors that follow from them.
func (p *Policy) stage(b *selector.Batch, up *torchx.Upload) *inputs {
	src := b.Source.(*Source)
	in := p.stageQueries(src, b.Queries, up)
	in.g, in.t = b.G, b.T
	p.checkActions(b, in)
	scored, n := p.stageFirst(in, b, up)
	p.stageBeside(in, scored, n, up)
	actions, chosen := p.columns(b.Actions, in.k)
	torchx.Put(up, &in.actions, actions, in.b, in.g, in.t)
	if p.opt.Stop.Enabled {
		torchx.Put(up, &in.chosen, chosen, in.b, in.g, in.t)
	}
	if slices.Contains(b.Mask, 0) {
		torchx.Put(up, &in.mask, b.Mask, in.b, in.g, in.t)
	}
	return in
}

// arrived makes the batch's embedding rows and cosines from the staged inputs.
func (p *Policy) arrived(in *inputs, opt selector.ForwardOptions) {
	if p.clip != nil {
		in.rows = p.clip.Rows(in.wanted, opt.Train, opt.DropoutSeed) // with gradient
	} else {
		in.rows = torchx.IndexSelect(p.table(in.src), 0, in.index).To(p.dtype) // [U+B, d]
	}
	in.places.Index, in.places.Padding = in.pool, in.padding
	if !p.opt.Stop.Enabled {
		in.chosen = in.actions
	}
	if !in.mask.Nil() {
		in.mask = in.mask.To(p.dtype)
	}
	switch {
	case !p.opt.Skip.Enabled:
	case p.onDevice():
		in.cos = p.cosines(in)
	default:
		in.cos = in.cos.To(p.dtype)
	}
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

// loadQueries brings queries and their pools to the device.
func (p *Policy) loadQueries(src *Source, queries []int) *inputs {
	var up torchx.Upload
	in := p.stageQueries(src, queries, &up)
	up.Send(p.params.Flat())
	p.arrived(in, selector.ForwardOptions{})
	return in
}

func (p *Policy) stageQueries(src *Source, queries []int, up *torchx.Upload) *inputs {
	in := &inputs{src: src, b: len(queries), queries: queries}
	in.kernels = p.opt.CandidateEncoder.Layers == 0 && torchx.PoolRuns(p.params.Flat())
	shared := true
	first := src.set.Pool(queries[0])
	for _, q := range queries {
		pool := src.set.Pool(q)
		in.k, in.pools = max(in.k, len(pool)), append(in.pools, pool)
		shared = shared && len(pool) == len(first) && unsafe.SliceData(pool) == unsafe.SliceData(first)
	}
	var rows []int64
	if shared {
		rows = list.Convert[int64](first)
	} else {
		rows = in.place(p, src, queries, up)
	}
	in.u = len(rows)
	in.candidates = rows[:in.u:in.u]
	for _, q := range queries {
		rows = append(rows, int64(src.set.Row(q)))
	}
	in.wanted = rows
	torchx.Put(up, &in.index, rows, len(rows))
	p.stageFeatures(in, up)
	if p.opt.Skip.Enabled && !p.onDevice() {
		cos := make([]float32, in.b*in.k)
		for i, q := range queries {
			copy(cos[i*in.k:], src.cosines(q))
		}
		torchx.Put(up, &in.cos, cos, in.b, in.k)
	}
	return in
}

// onDevice reports whether cosines are computed from the rows of each batch and not once from the table.
func (p *Policy) onDevice() bool { return p.device != "cpu" || p.clip != nil }

// cosines computes cos(E_q, E_j) [B, K] on the device, from products of the batch's queries with its distinct candidates, or,
// where these are many, with each query's own.
func (p *Policy) cosines(in *inputs) torchx.Tensor {
	inverse := torchx.FullLike(in.rows, 1, p.dtype, in.u+in.b) // [U+B], of a model's rows, which have unit length
	if p.clip == nil {
		inverse = torchx.IndexSelect(p.inverseNorms(in.src), 0, in.index).To(p.dtype)
	}
	c, q := torchx.Split(in.rows, 0, in.u) // [U, d], [B, d]
	perC, perQ := torchx.Split(inverse, 0, in.u)
	const wide = 64
	if !in.pool.Nil() && in.u > wide*in.k {
		own := torchx.Squeeze(products(torchx.Unsqueeze(q, 1), torchx.Embedding(c, in.pool)), 1)       // [B, K]
		perOwn := torchx.Reshape(torchx.IndexSelect(perC, 0, torchx.Reshape(in.pool, -1)), in.b, in.k) // [B, K]
		return torchx.Mul(torchx.Mul(own, torchx.Unsqueeze(perQ, 1)), perOwn)
	}
	all := torchx.Mul(torchx.Mul(products(q, c), torchx.Unsqueeze(perQ, 1)), perC) // [B, U]
	if in.pool.Nil() {
		return all
	}
	return torchx.Gather(all, 1, in.pool)
}

// place lists the distinct candidates of different pools, which are projected once, and fills pool and padding.
func (in *inputs) place(p *Policy, src *Source, queries []int, up *torchx.Upload) (rows []int64) {
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
	torchx.Put(up, &in.pool, pool, in.b, in.k)
	if padded {
		torchx.Put(up, &in.padding, padding, in.b, in.k)
	}
	for p.device != "cpu" && len(rows)%uniqueStep != 0 {
		rows = append(rows, rows[0])
	}
	if in.kernels {
		in.putPlaces(pool, padding, len(rows), up)
	}
	return rows
}

// putPlaces stages, for each of u rows, its places in the pools [B·K], in order.
func (in *inputs) putPlaces(pool []int64, padding []bool, u int, up *torchx.Upload) {
	starts, order := make([]int32, u+2), make([]int32, len(pool))
	for at, row := range pool {
		if !padding[at] {
			starts[row+2]++
		}
	}
	for row := range u {
		starts[row+2] += starts[row+1]
	}
	for at, row := range pool { // starts[row+1] goes from where row begins to where it ends
		if !padding[at] {
			order[starts[row+1]] = int32(at)
			starts[row+1]++
		}
	}
	torchx.Put(up, &in.places.Order, order, len(order))
	torchx.Put(up, &in.places.Starts, starts[:u+1], u+1)
}

// uniqueStep rounds the number of distinct candidates up on CUDA: batches of a run then have the same shapes.
const uniqueStep = 128

// products multiplies vectors x [B, N, h] with every candidate's c ([B, K, h], or [K, h] shared): [B, N, K].
func products(x, c torchx.Tensor) torchx.Tensor { return torchx.MatMul(x, torchx.Transpose(c, -2, -1)) }

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

// inverseNorms returns 1/|E| of each row of the source's table [rows] on the policy's device, computed once.
func (p *Policy) inverseNorms(src *Source) torchx.Tensor {
	t := src.set.Table
	if inverse, ok := p.tables.inverse[t]; ok {
		return inverse
	}
	norm := torchx.ClampMin(torchx.Sqrt(torchx.Sum(torchx.Square(p.table(src)), 1)), 1e-12)
	p.tables.inverse[t] = torchx.Own(torchx.Div(torchx.FullLike(norm, 1, torchx.Float32, t.Rows), norm))
	return p.tables.inverse[t]
}

func (p *Policy) move(t torchx.Tensor) torchx.Tensor { return torchx.ToLike(t, p.params.Flat()) }
