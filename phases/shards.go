package phases

import (
	"slices"
	"unsafe"

	"fulcrum/internal/option"
	"fulcrum/internal/ranks"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// A step may be cut into shards of whole groups (parallel.shards), which the processes of a run share. What a shard computes depends on
// the step, its number and its queries, never on who computes it, and the sums of shards are added along one tree (package ranks): a run
// has the same bytes for every number of processes.

func (e *Env) shards() int { return max(e.Shards, 1) }

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
		size := option.Or(s.micro, max(of.To-of.From, 1))
		for from := of.From; from < of.To; from += size {
			span := Span{from, min(from+size, of.To)}
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
	g := gradients{of: l, early: newEarly(l)}
	nodes := ranks.Sums(l.env.shards(), from, to, func(i int) *torchx.Tensor {
		for leaves[i-from] == nil { // one, but where the other order is taken
			own[turns[0]], leaves[turns[0]] = g.compute(w.shards[turns[0]], len(turns) == 1)
			turns = turns[1:]
		}
		return leaves[i-from]
	}, g.add)
	if err := g.sum(nodes); err != nil {
		return err
	}
	if err := l.prepare(); err != nil {
		return err
	}
	all, err := ranks.Gather(l.env.Ranks, "the losses of a step", partial{slices.Concat(own...), l.Optimizer.GradientParts()}, nil)
	if err != nil {
		return err
	}
	squares := 0.0
	var losses []float64
	var read [][]float64
	for _, part := range all {
		for _, of := range part.Squares {
			squares += of
		}
		for _, of := range part.Passed {
			f.spans, losses, read = append(f.spans, of.Span), append(losses, of.Loss), append(read, of.Read...)
		}
	}
	moments, err := l.updateOwn(squares, losses, f.lr)
	f.read = append([][]float64{{squares}, {moments}, losses}, read...)
	return err
}

// partial are a process's numbers of a step; Squares are parts of Σ g², of its share.
type partial struct {
	Passed  []passed
	Squares []float64
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
	parts, err := gathered(l.env.Ranks, "the moments of a step", l.Optimizer.MomentParts(), nil)
	if err == nil && l.env.Ranks != nil {
		err = l.spread()
	}
	return l.Params.AddSquares(parts), err
}

// partOf is a part of a flat buffer.
func partOf(of torchx.Tensor, part Span) torchx.Tensor {
	return torchx.Narrow(of, 0, part.From, part.To-part.From)
}

// gradients are those of shards and their sums. The one that is computed last lies in the parameters' own buffer, until another is
// computed there: it is a pointer to no tensor.
type gradients struct {
	of    *Learner
	here  *torchx.Tensor // in the buffer
	early *early         // nil: processes exchange them behind the passes
}

// compute makes the passes of a shard, this process's last or another, and returns their numbers and their gradient.
func (g *gradients) compute(of shard, last bool) (numbers []passed, gradient *torchx.Tensor) {
	defer torchx.Scope()()
	if g.here != nil {
		*g.here = torchx.Own(torchx.Scale(g.of.Params.Grad(), 1)) // a copy
	}
	g.here = new(torchx.Tensor)
	if g.early == nil {
		return g.of.numbers(of), g.here
	}
	g.early.during(g, last, func() { numbers = g.of.numbers(of) })
	g.early.earlier = append(g.early.earlier, g.here)
	return numbers, g.here
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
	if g.early != nil {
		g.early.earlier = append(g.early.earlier[:len(g.early.earlier)-2], a)
	}
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

// sumOf returns the sum of all processes' nodes; of gives the i-th node of a rank, which becomes part of the sum.
func (l *Learner) sumOf(of func(rank, i int) torchx.Tensor) torchx.Tensor {
	var all []ranks.Node[torchx.Tensor]
	for rank := range l.env.Ranks.Size() {
		nodes := l.env.nodes(rank)
		for i := range nodes {
			nodes[i].Sum = of(rank, i)
		}
		all = append(all, nodes...)
	}
	return ranks.Total(l.env.shards(), all, func(a, b torchx.Tensor) torchx.Tensor {
		torchx.AddTo(a, b)
		return a
	})
}

// nodes are the nodes of the tree that a process computes.
func (e *Env) nodes(rank int) []ranks.Node[torchx.Tensor] {
	from, to := ranks.Part(e.shards(), rank, e.Ranks.Size())
	first := func(a, _ torchx.Tensor) torchx.Tensor { return a }
	return ranks.Sums(e.shards(), from, to, func(int) (none torchx.Tensor) { return none }, first)
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
