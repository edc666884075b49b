package seq2seq

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// rows are the input of a stack: N tokens of any number of sequences, packed one sequence after the other.
type rows struct {
	side  string // encoder or decoder
	ids   []int64
	at    []int64       // [N] place in its sequence
	self  []torchx.Span // one a sequence, in order
	bias  *bias         // T5: added to the scores of self-attention
	cross []torchx.Span // decoder: which of the encoder's rows it sees
	cache *cache        // decoding: keys and values go there, and spans name its rows; nil: spans name rows of the input
	step  *resident     // a step of it instead of ids, at, self and cross; nil where these are on the host

	observe func(layer int, x torchx.Tensor) // tests look at the hidden states
}

// network is the arithmetic of an architecture over rows.
type network interface {
	// embed returns the input of the first layer [N, d].
	embed(in *rows) torchx.Tensor
	// layer is layer i: x [N, d] → [N, d]. memory [M, d] is the encoder's output; a decoder with a cache has none.
	layer(i int, x, memory torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor
	// finish makes the stack's output of the last layer's [N, d].
	finish(in *rows, x torchx.Tensor) torchx.Tensor
	// cross is decoder layer i's attention over the encoder's rows.
	cross(i int) *attention
}

// run passes rows through their stack: [N, d].
func (m *Model) run(in *rows, memory torchx.Tensor, p *lora.Pass) torchx.Tensor {
	x := m.net.embed(in)
	for i := range m.cfg.stack(in.side).Layers {
		if in.observe != nil {
			in.observe(i, x)
		}
		x = m.through(i, x, memory, in, p)
	}
	return m.net.finish(in, x)
}

// through passes x on through a layer and lets go of it: what a graph needs stays alive, and without one memory holds a
// single layer's rows. With gradient checkpointing, where it is wanted, the layer is computed again in the backward
// pass; the decoder's input and the encoder's output are one tensor then.
func (m *Model) through(i int, x, memory torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor {
	defer x.Free()
	if !m.opt.GradientCheckpointing || in.cache != nil {
		return m.net.layer(i, x, memory, in, p)
	}
	if memory.Nil() {
		return torchx.Checkpoint(x, func(x torchx.Tensor) torchx.Tensor { return m.net.layer(i, x, memory, in, p) })
	}
	return torchx.Checkpoint(torchx.Cat(0, x, memory), func(both torchx.Tensor) torchx.Tensor {
		x, memory := torchx.Split(both, 0, len(in.ids))
		return m.net.layer(i, x, memory, in, p)
	})
}

// attention is one attention's weights.
type attention struct {
	q, k, v, o lora.Layer
	heads, dim int
	scale      float64 // of the scores
}

// attention puts one attention together, whose layers have these names.
func (c *Config) attention(b *tokens.Builder, name string, s Stack, scale float64, bias bool, q, k, v, o string) attention {
	in := func(p string) lora.Layer { return b.Linear(name+"."+p, c.Width, s.Inner(), bias) }
	return attention{in(q), in(k), in(v), b.Linear(name+"."+o, s.Inner(), c.Width, bias), s.Heads, s.HeadDim, scale}
}

// split returns l·y as heads [N, H, D].
func (m *Model) split(a *attention, l *lora.Layer, y torchx.Tensor, p *lora.Pass) torchx.Tensor {
	return torchx.Reshape(m.Apply(l, y, p), -1, a.heads, a.dim)
}

// merge returns the output of heads [N, H, D].
func (m *Model) merge(a *attention, seen torchx.Tensor, p *lora.Pass) torchx.Tensor {
	return m.Apply(&a.o, torchx.Reshape(seen, -1, a.heads*a.dim), p)
}

// attendSelf is self-attention of layer i over y [N, d].
func (m *Model) attendSelf(a *attention, i int, y torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor {
	q, k, v := m.split(a, &a.q, y, p), m.split(a, &a.k, y, p), m.split(a, &a.v, y, p)
	if in.step != nil {
		return m.merge(a, in.step.attend(i, q, k, v, a.scale), p)
	}
	if in.cache != nil {
		k, v = in.cache.Store(i, k, v)
	}
	if in.bias != nil {
		return m.merge(a, torchx.AttendBiased(q, k, v, in.self, a.scale, in.bias.scores, in.bias.zero), p)
	}
	return m.merge(a, torchx.Attend(q, k, v, in.self, a.scale), p)
}

// attendCross is layer i's attention of y [N, d] over the encoder's rows.
func (m *Model) attendCross(a *attention, i int, y, memory torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor {
	var k, v torchx.Tensor
	if in.step != nil {
		q := m.split(a, &a.q, y, p)
		return m.merge(a, torchx.AttendDecode(q, in.step.crossK[i], in.step.crossV[i], &in.step.source, a.scale), p)
	}
	if in.cache != nil {
		k, v = in.cache.crossK[i], in.cache.crossV[i]
	} else {
		k, v = m.split(a, &a.k, memory, p.Memory()), m.split(a, &a.v, memory, p.Memory())
	}
	return m.merge(a, torchx.Attend(m.split(a, &a.q, y, p), k, v, in.cross, a.scale), p)
}

// embedding returns the input's rows of the shared table [N, d] in the type of computation.
func (m *Model) embedding(in *rows) torchx.Tensor {
	var ids torchx.Tensor
	if in.step != nil {
		ids = in.step.ids
	} else {
		ids = m.Int64s(in.ids)
	}
	return torchx.Embedding(m.table, ids).To(m.DType) // a trained table is float32, one in the file's type may be bfloat16
}
