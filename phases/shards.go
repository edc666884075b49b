package phases

import (
	"runtime"
	"slices"
	"unsafe"

	"fulcrum/internal/ranks"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// A step may be cut into shards of whole groups (parallel.shards), which the processes of a run share. What a shard computes depends on
// the step, its number and its queries, never on who computes it, and the sums of shards are added along one tree (package ranks): a run
// has the same bytes for every number of processes.

// shards is the number of shards of a step.
func (e *Env) shards() int { return max(e.Shards, 1) }

// cut reports whether steps are cut into several shards.
func (e *Env) cut() bool { return e.Shards > 1 }

// own returns the shards [from, to) of this process.
func (e *Env) own() (from, to int) { return ranks.Part(e.shards(), e.Ranks.Rank(), e.Ranks.Size()) }

// spans returns the queries of n that each shard of this process has.
func (e *Env) spans(n int) (own []Span) {
	for shard, to := e.own(); shard < to; shard++ {
		from, to := ranks.Part(n, shard, e.shards())
		own = append(own, Span{from, to})
	}
	return own
}

// shard is a share of a step whose passes run together.
type shard struct {
	spans []Span // the parts of the batch that are in the loss
	// passes makes the forward and backward passes. It returns the parts of the loss (scalars) and the tensors that Loss asks to read.
	passes func() (losses, read []torchx.Tensor)
}

// inputs asks the algorithm for the inputs of the passes.
func (s *Steps[R, I]) inputs(p *planned[R]) {
	p.work = &work{}
	for _, of := range s.learn.env.spans(s.of.Size(p.batch)) {
		var parts []I
		var one shard
		for from, to := range objective.Spans(of.To-of.From, s.micro) {
			span := Span{of.From + from, of.From + to}
			if part, ok := s.of.Inputs(p.batch, span, &p.work.Inputs); ok {
				parts, one.spans = append(parts, part), append(one.spans, span)
			}
		}
		one.passes = func() (losses, read []torchx.Tensor) {
			for _, part := range parts {
				loss, more := s.backward(part)
				losses, read = append(losses, loss), append(read, more...)
			}
			return losses, read
		}
		p.work.shards = append(p.work.shards, one)
	}
}

// turn returns in which order n shards of this process are computed, which changes no byte: a proof takes the other one.
func (e *Env) turn(n int) []int {
	order := stat.Indices(n)
	if e.Backwards {
		slices.Reverse(order)
	}
	return order
}

// passes makes the passes of a shard, whose gradient they leave.
func (l *Learner) passes(of shard) (losses, read []torchx.Tensor) {
	l.Params.ZeroGrad()
	return of.passes()
}

// Draw returns the groups of queries that of draws, with their rewards. Where steps are cut, each shard draws its own, with its number
// from 1 as a further counter of the draw, and processes exchange what they have drawn.
func (e *Env) Draw(src selector.Source, queries []int, of func(queries []int, shard ...int) (*selector.Batch, error)) (*selector.Batch,
	error) {
	if !e.cut() {
		return of(queries)
	}
	var failed error
	first, _ := e.own()
	spans := e.spans(len(queries))
	own := make([][]selector.Batch, len(spans))
	for _, i := range e.turn(len(spans)) {
		if span := spans[i]; span.From < span.To && failed == nil {
			var b *selector.Batch
			if b, failed = of(queries[span.From:span.To], first+i+1); failed == nil {
				b.Source = nil // the others have their own
				own[i] = []selector.Batch{*b}
			}
		}
	}
	all, err := gathered(e.Ranks, "the groups of a step", slices.Concat(own...), failed)
	if err != nil {
		return nil, err
	}
	parts := make([]*selector.Batch, len(all))
	for i := range all {
		parts[i] = &all[i]
	}
	return selector.Join(src, parts[0].G, parts...), nil
}

// passed are the numbers of a part of a step.
type passed struct {
	Span Span
	Loss float64
	Read [][]float64 // of the tensors of Loss
}

// computeShards makes a step whose gradient is the sum of shards, which are computed one after the other.
func (l *Learner) computeShards(w *work, f *flight) error {
	defer torchx.Scope()()
	w.Upload.Send(l.Params.Flat())
	from, to := l.env.own()
	own, leaves := make([][]passed, to-from), make([]*torchx.Tensor, to-from)
	turns := l.env.turn(to - from)
	g := gradients{of: l}
	nodes := ranks.Sums(l.env.shards(), from, to, func(i int) *torchx.Tensor {
		for leaves[i-from] == nil { // one, but where the other order is taken
			own[turns[0]], leaves[turns[0]] = g.compute(w.shards[turns[0]])
			turns = turns[1:]
		}
		return leaves[i-from]
	}, g.add)
	if err := g.sum(nodes); err != nil {
		return err
	}
	part := partial{Passed: slices.Concat(own...)}
	if l.env.Ranks.First() {
		squares, err := l.squares()
		if err != nil {
			return err
		}
		part.Squares = squares.Item()
	}
	all, err := ranks.Gather(l.env.Ranks, "the losses of a step", part, nil)
	if err != nil {
		return err
	}
	var losses []float64
	var read [][]float64
	for _, part := range all {
		for _, of := range part.Passed {
			f.spans, losses, read = append(f.spans, of.Span), append(losses, of.Loss), append(read, of.Read...)
		}
	}
	moments, err := l.updateOwn(all[0].Squares, losses, f.lr)
	f.read = append([][]float64{{all[0].Squares}, {moments}, losses}, read...)
	return err
}

// partial are a process's numbers of a step; Squares is Σ g², of rank 0.
type partial struct {
	Passed  []passed
	Squares float64
}

// updateOwn updates the parameters that are this process's share, and takes those of the others from them. It returns Σ m².
func (l *Learner) updateOwn(squares float64, losses []float64, lr float64) (moments float64, err error) {
	like := l.Params.Flat()
	on := func(x []float64) torchx.Tensor { return torchx.ToLike(torchx.From(x, len(x)), like) }
	var of torchx.Tensor
	if len(losses) > 0 {
		of = on(losses).To(torchx.Float32)
	}
	l.Optimizer.StepClipped(lr, l.clip, on([]float64{squares}), of, !l.env.AllowNonFinite)
	group := l.env.Ranks
	parts, err := gathered(group, "the moments of a step", l.Optimizer.MomentParts(), nil)
	if err != nil || group == nil {
		return l.Params.AddSquares(parts), err
	}
	if l.env.Devices != nil {
		if err := l.spreadOnDevices(); err != nil {
			return 0, group.Why(err)
		}
		return l.Params.AddSquares(parts), nil
	}
	pieces := l.pieces()
	err = group.Combine("the weights of a step", len(pieces),
		func(i int) []byte {
			of := &l.sent[i%2]
			*of = l.values((*of)[:0], like, l.share(group.Rank(), pieces[i]))
			return bytesOf(*of)
		},
		func(i int, all [][]byte) [][]byte {
			l.whole = l.whole[:0]
			for _, theirs := range all {
				l.whole = append(l.whole, floatsOf(theirs)...)
			}
			parts := slices.Repeat([][]byte{bytesOf(l.whole)}, len(all))
			for rank := range parts {
				if l.share(rank, pieces[i]) == pieces[i] { // it has them
					parts[rank] = nil
				}
			}
			return parts
		},
		func(i int, whole []byte) {
			if len(whole) > 0 {
				l.set(like, pieces[i], whole)
			}
		})
	return l.Params.AddSquares(parts), err
}

// pieces are the parts of the flat buffers that processes exchange at a time: no message is as large as the model.
func (l *Learner) pieces() (all []Span) {
	const largest = 1 << 20
	for from, to := range objective.Spans(l.Params.Numel(), new(largest)) {
		all = append(all, Span{from, to})
	}
	return all
}

// share is what a process updates of a piece; it may be empty.
func (l *Learner) share(rank int, piece Span) Span {
	from, to := l.Params.Share(rank, l.env.Ranks.Size())
	from = min(max(from, piece.From), piece.To)
	return Span{from, max(from, min(to, piece.To))}
}

// partOf is a part of a flat buffer.
func partOf(of torchx.Tensor, part Span) torchx.Tensor {
	return torchx.Narrow(of, 0, part.From, part.To-part.From)
}

// values appends a part of a flat buffer to numbers of the host, and set sets one.
func (l *Learner) values(to []float32, of torchx.Tensor, part Span) []float32 {
	n := part.To - part.From
	if n == 0 {
		return to
	}
	defer torchx.Scope()()
	to = slices.Grow(to, n)[:len(to)+n]
	torchx.Copy(torchx.FromStatic(to[len(to)-n:], n), partOf(of, part))
	runtime.KeepAlive(to)
	return to
}

func (l *Learner) set(of torchx.Tensor, part Span, values []byte) {
	defer torchx.Scope()()
	torchx.Copy(partOf(of, part), torchx.FromStatic(floatsOf(values), part.To-part.From))
	runtime.KeepAlive(values)
}

// gradients are those of shards and their sums. The one that is computed last lies in the parameters' own buffer, until another is
// computed there: it is a pointer to no tensor.
type gradients struct {
	of   *Learner
	here *torchx.Tensor // in the buffer
}

// compute makes the passes of a shard and returns their numbers and their gradient.
func (g *gradients) compute(of shard) ([]passed, *torchx.Tensor) {
	defer torchx.Scope()()
	if g.here != nil {
		*g.here = torchx.Own(torchx.Scale(g.of.Params.Grad(), 1)) // a copy
	}
	g.here = new(torchx.Tensor)
	return g.of.numbers(of), g.here
}

// at is where a gradient lies.
func (g *gradients) at(x *torchx.Tensor) torchx.Tensor {
	if x == g.here {
		return g.of.Params.Grad()
	}
	return *x
}

// add returns a + b, in place of one of them: in the buffer, if one is there.
func (g *gradients) add(a, b *torchx.Tensor) *torchx.Tensor {
	if b == g.here {
		a, b = b, a
	}
	torchx.AddTo(g.at(a), *b)
	b.Free()
	return a
}

// numbers makes the passes of a shard; an empty one adds zeros.
func (l *Learner) numbers(s shard) []passed {
	losses, read := l.passes(s)
	if len(losses) == 0 {
		return nil
	}
	values := torchx.Read(append(slices.Clone(losses), read...)...)
	out := make([]passed, len(s.spans))
	for i, span := range s.spans {
		n := len(read) / len(s.spans)
		out[i] = passed{span, values[i][0], values[len(losses)+i*n:][:n]}
	}
	return out
}

// sum puts the sum of all shards into the gradient: the whole at rank 0, elsewhere what the process updates. nodes are the sums of this
// process's shards, which it frees.
func (g *gradients) sum(nodes []ranks.Node[*torchx.Tensor]) error {
	l := g.of
	grad, group := l.Params.Grad(), l.env.Ranks
	if group == nil { // one node, in the buffer
		return nil
	}
	defer func() {
		for _, node := range nodes {
			node.Sum.Free()
		}
	}()
	pieces := l.pieces()
	if l.env.Devices != nil {
		for _, piece := range pieces {
			if err := g.sumOnDevices(nodes, piece); err != nil {
				return group.Why(err)
			}
		}
		return nil
	}
	return group.Combine("the gradient of a step", len(pieces),
		func(i int) []byte {
			of := &l.sent[i%2]
			*of = (*of)[:0]
			for _, node := range nodes {
				*of = l.values(*of, g.at(node.Sum), pieces[i])
			}
			return bytesOf(*of)
		},
		func(i int, all [][]byte) [][]byte { return l.sumPiece(pieces[i], all) },
		func(i int, sum []byte) {
			own := l.share(group.Rank(), pieces[i])
			if group.First() {
				own = pieces[i]
			}
			l.set(grad, own, sum)
		})
}

// sumPiece adds the nodes of all processes, and returns for each what it needs of the sum.
func (l *Learner) sumPiece(piece Span, all [][]byte) (parts [][]byte) {
	defer torchx.Scope()()
	size := 4 * (piece.To - piece.From)
	sum := l.sumOf(func(rank, i int) torchx.Tensor {
		return torchx.ToLike(torchx.FromStatic(floatsOf(all[rank][i*size:][:size]), size/4), l.Params.Grad())
	})
	l.whole = l.values(l.whole[:0], sum, Span{0, piece.To - piece.From})
	whole := bytesOf(l.whole)
	runtime.KeepAlive(all)
	for rank := range all {
		part := l.share(rank, piece)
		parts = append(parts, whole[4*(part.From-piece.From):4*(part.To-piece.From)])
	}
	parts[0] = whole // it makes Σ g²
	return parts
}

// sumOf returns the sum of all processes' nodes; of gives the i-th node of a rank, which becomes part of the sum.
func (l *Learner) sumOf(of func(rank, i int) torchx.Tensor) torchx.Tensor {
	n, size := l.env.shards(), l.env.Ranks.Size()
	var all []ranks.Node[torchx.Tensor]
	for rank := range size {
		from, to := ranks.Part(n, rank, size)
		nodes := ranks.Sums(n, from, to, func(int) (none torchx.Tensor) { return none }, func(a, _ torchx.Tensor) torchx.Tensor { return a })
		for i := range nodes {
			nodes[i].Sum = of(rank, i)
		}
		all = append(all, nodes...)
	}
	return ranks.Total(n, all, func(a, b torchx.Tensor) torchx.Tensor {
		torchx.AddTo(a, b)
		return a
	})
}

// bytesOf and floatsOf look at the same memory: processes of a run have one byte order, as their fingerprint says.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func floatsOf(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// gathered returns the numbers of all processes in one list, by rank.
func gathered[T any](g *ranks.Group, name string, own []T, failed error) ([]T, error) {
	all, err := ranks.Gather(g, name, own, failed)
	return slices.Concat(all...), err
}
