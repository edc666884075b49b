package pointer

import (
	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
)

// cursor is the state of a batch's partial selections: N of each query after equally many choices (N is 1
// before the first). It holds everything that a choice changes, so a variant is written once for teacher
// forcing, sampling and beam search.
type cursor struct {
	step   int             // choices made
	state  torchx.Tensor   // [B, N, h] unit query state; undefined without the encoder
	hidden torchx.Tensor   // [B, N, h] the GRU's state before normalising; undefined without it
	prefix torchx.Tensor   // [B, N, step+1, h] the query's state and the chosen; undefined without the transformer
	memory []torchx.Tensor // each [B, N, …]: the diversity term's memory of the chosen
	beside torchx.Tensor   // [B, N, K, columns] sum of the features beside the chosen; undefined without such
}

// start returns the cursor before the first choice.
func (p *Policy) start(e encoded) cursor {
	c := cursor{state: e.state}
	switch {
	case p.opt.StateUpdate == "gru":
		c.hidden = e.state
	case p.opt.StateUpdate == transformerState && p.stateful():
		c.prefix = torchx.Unsqueeze(e.state, 1)
		c.state = p.readOn(c.prefix)
	}
	return c
}

// stateful reports whether a choice changes the query state.
func (p *Policy) stateful() bool { return p.opt.encodes() && p.opt.StateUpdate != "none" }

// advance returns the cursor after choosing the examples at positions [B, N] (int64) of their pools.
func (p *Policy) advance(e encoded, c cursor, position torchx.Tensor) cursor {
	c.step++
	if p.features != nil && p.features.BesideColumns() > 0 {
		c.beside = plus(c.beside, p.besideChosen(e.in, c.step-1, position))
	}
	if !p.stateful() && p.diversity == nil {
		return c
	}
	chosen := e.vector(position) // [B, N, h]
	if p.stateful() {
		p.update(&c, chosen)
	}
	if p.diversity != nil {
		c.memory = p.diversity.remember(p, e, c.memory, chosen)
	}
	return c
}

// follow keeps the selections index [B·N] of the B·N, for beam search. Shared state (N = 1) stays.
func (c cursor) follow(index torchx.Tensor) cursor {
	take := func(x torchx.Tensor) torchx.Tensor {
		if x.Nil() || x.Shape()[1] == 1 {
			return x
		}
		shape := x.Shape() // [B, N, …]
		x = torchx.Reshape(x, append([]int{shape[0] * shape[1]}, shape[2:]...)...)
		return torchx.Reshape(torchx.IndexSelect(x, 0, index), shape...)
	}
	return cursor{step: c.step, state: take(c.state), hidden: take(c.hidden), prefix: take(c.prefix), beside: take(c.beside),
		memory: list.Map(c.memory, take)}
}

// rows describes the rows of a score matrix [B, R, …]: the scores before the choices first … last (from 0), one row for
// choice 0 and n rows for each later one, as PickLogp wants them.
type rows struct {
	first, last, n int
	chosen         torchx.Tensor // [B, n, ≥ last] positions chosen before; undefined when last is 0
}

func (r rows) count(step int) int {
	if step == 0 {
		return 1
	}
	return r.n
}

func (r rows) total() int {
	total := 0 // none when first > last
	for t := r.first; t <= r.last; t++ {
		total += r.count(t)
	}
	return total
}

// repeated expands scores that all steps, or all selections of a step, share: x [B, 1 | steps | R, n] → [B, R, n].
func (r rows) repeated(x torchx.Tensor) torchx.Tensor {
	shape, total := x.Shape(), r.total()
	switch shape[1] {
	case total:
		return x
	case 1:
		return torchx.Expand(x, -1, total, -1)
	}
	blocks := make([]torchx.Tensor, 0, r.last-r.first+1)
	for t := r.first; t <= r.last; t++ {
		blocks = append(blocks, torchx.Expand(torchx.Narrow(x, 1, t-r.first, 1), -1, r.count(t), -1))
	}
	return torchx.Cat(1, blocks...)
}

// exclude sets the logits of examples chosen before to v in the scores z [B, R, ≥ K].
func (r rows) exclude(z torchx.Tensor, v float64) torchx.Tensor {
	blocks := r.excluded(z, v)
	if len(blocks) == 1 {
		return blocks[0]
	}
	return torchx.Cat(1, blocks...)
}

// excluded does the work of exclude step by step.
func (r rows) excluded(z torchx.Tensor, v float64) []torchx.Tensor {
	blocks := r.blocks(z)
	for i := range blocks {
		if t := r.first + i; t > 0 {
			blocks[i] = torchx.ScatterValue(blocks[i], 2, torchx.Narrow(r.chosen, 2, 0, t), v)
		}
	}
	return blocks
}

// blocks cuts z [B, R, …] into steps.
func (r rows) blocks(z torchx.Tensor) []torchx.Tensor {
	out, at := make([]torchx.Tensor, 0, r.last-r.first+1), 0
	for t := r.first; t <= r.last; t++ {
		out = append(out, torchx.Narrow(z, 1, at, r.count(t)))
		at += r.count(t)
	}
	return out
}
