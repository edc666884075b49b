package vl

import (
	"fmt"
	"math"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// decoder is the language model's weights (spec §7).
type decoder struct {
	embed  torchx.Tensor // [V, H]
	layers []decoderLayer
	norm   torchx.Tensor
	head   torchx.Tensor // [V, H]; the embedding where they are tied
}

type decoderLayer struct {
	inputNorm, postNorm torchx.Tensor
	qNorm, kNorm        torchx.Tensor // [D] where heads are normed
	q, k, v, gate, up   *lora.Layer
	o, down             lora.Layer
	qkv, gateUp         *lora.Group // the same as one; nil where they are not Joined
	bare                bool        // queries and keys do not rotate
}

// decoder puts the language model together.
func (c *Config) decoder(b *tokens.Builder) decoder {
	h, q, kv := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	d := decoder{embed: b.Tensor("model.embed_tokens.weight", c.Vocab, h)}
	for i := range c.Layers {
		name := fmt.Sprintf("model.layers.%d.", i)
		attn, mlp := name+"self_attn.", name+"mlp."
		l := decoderLayer{inputNorm: b.Tensor(name+"input_layernorm.weight", h), bare: c.Bare != nil && c.Bare[i]}
		heads, qkv := b.Group(h, c.Bias, lora.Linear{Name: attn + "q_proj", Out: q}, lora.Linear{Name: attn + "k_proj", Out: kv},
			lora.Linear{Name: attn + "v_proj", Out: kv})
		l.q, l.k, l.v, l.qkv = heads[0], heads[1], heads[2], qkv
		l.o = b.Linear(attn+"o_proj", q, h, c.OutBias)
		if c.HeadNorms {
			l.qNorm, l.kNorm = b.Tensor(attn+"q_norm.weight", c.HeadDim), b.Tensor(attn+"k_norm.weight", c.HeadDim)
		}
		l.postNorm = b.Tensor(name+"post_attention_layernorm.weight", h)
		halves, gateUp := b.Group(h, c.MLPBias, lora.Linear{Name: mlp + "gate_proj", Out: c.Intermediate},
			lora.Linear{Name: mlp + "up_proj", Out: c.Intermediate})
		l.gate, l.up, l.gateUp = halves[0], halves[1], gateUp
		l.down = b.Linear(mlp+"down_proj", c.Intermediate, h, c.MLPBias)
		d.layers = append(d.layers, l)
	}
	d.norm = b.Tensor("model.norm.weight", h)
	if d.head = d.embed; !c.Tied {
		d.head = b.Tensor("lm_head.weight", c.Vocab, h)
	}
	return d
}

// rows are the decoder's input: N tokens of any number of sequences.
type rows struct {
	ids    []int64    // [N]
	places []position // [N]
	spans  []torchx.Span
	decode *torchx.DecodeSpans // instead of spans where not nil: what the rows of a resident decoding see

	media   torchx.Tensor // [M, H] vectors of images and videos, or none
	mediaAt []int64       // [M] the rows that they replace
	cache   *tokens.Cache // keys and values go there, and spans name its rows; nil: spans name rows of the input
	tail    *lastRows     // the last layer computes these rows only; nil: all
}

// lastRows are the rows of the input that anything reads behind the last layer, and what they see.
type lastRows struct {
	rows  []int64
	spans []torchx.Span
}

// embedRows returns the decoder's input [N, H]: embeddings of the ids, with the images' vectors in their places.
func (m *Model) embedRows(in *rows) torchx.Tensor {
	ids := m.Int64s(in.ids)
	x := torchx.Embedding(m.text.embed, ids).To(m.DType) // a trained table is float32, one in the file's type may be bfloat16
	if len(in.mediaAt) > 0 {
		x = torchx.ReplaceRows(x, m.Int64s(in.mediaAt), m.ofLayer(in, 0))
	}
	return x
}

// ofLayer returns the pictures' vectors [M, H] that replace the placeholders (0), or that are added behind the k-th layer (k).
func (m *Model) ofLayer(in *rows, k int) torchx.Tensor {
	return torchx.Narrow(in.media, 1, k*m.cfg.Hidden, m.cfg.Hidden)
}

// forward returns the last layer's rows after the final norm [N, H].
func (m *Model) forward(in *rows, p *lora.Pass) torchx.Tensor {
	x := m.embedRows(in)
	cos, sin := m.rotation(in.places)
	return m.layers(x, cos, sin, in, p)
}

// layers passes the decoder's input x [N, H] through all layers and the final norm.
func (m *Model) layers(x, cos, sin torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor {
	deep, at := 0, torchx.Tensor{} // behind how many layers pictures' vectors are added, and to which rows
	if len(in.mediaAt) > 0 {
		if deep = len(m.cfg.Vision.Deep); deep > 0 {
			at = m.Int64s(in.mediaAt)
		}
	}
	for i := range m.text.layers {
		layer := func(x torchx.Tensor) torchx.Tensor { return m.decoderLayer(i, x, cos, sin, in, p) }
		x = m.through(layer, x, in.cache == nil)
		if i < deep {
			x = torchx.ReplaceRows(x, at, torchx.Add(torchx.IndexSelect(x, 0, at), m.ofLayer(in, i+1)))
		}
	}
	return torchx.RMSNorm(x, m.As(m.text.norm), m.cfg.Eps)
}

// through passes x on through a layer and lets go of it: what a graph needs stays alive, and without one memory holds a
// single layer's rows. With gradient checkpointing, where it is wanted, the layer is computed again in the backward pass.
func (m *Model) through(layer func(torchx.Tensor) torchx.Tensor, x torchx.Tensor, again bool) torchx.Tensor {
	defer x.Free()
	if m.opt.GradientCheckpointing && again {
		return torchx.Checkpoint(x, layer)
	}
	return layer(x)
}

// decoderLayer is one layer: x [N, H] → [N, H].
func (m *Model) decoderLayer(i int, x, cos, sin torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor {
	defer torchx.Scope()()
	l, c, n := &m.text.layers[i], m.cfg, x.Shape()[0]
	of, after := func(x torchx.Tensor) torchx.Tensor { return x }, in
	if in.tail != nil && i == len(m.text.layers)-1 {
		at := m.Int64s(in.tail.rows)
		of = func(x torchx.Tensor) torchx.Tensor { return torchx.IndexSelect(x, 0, at) }
		after, n = &rows{spans: in.tail.spans}, len(in.tail.rows)
	}
	q, k, v := m.heads(i, torchx.RMSNorm(x, m.As(l.inputNorm), c.Eps), cos, sin, in, of, p)
	seen := torchx.Reshape(after.attend(q, k, v, 1/math.Sqrt(float64(c.HeadDim))), n, c.Heads*c.HeadDim)
	x, y := torchx.AddRMSNorm(of(x), m.Apply(&l.o, seen, p), m.As(l.postNorm), c.Eps)
	var wide torchx.Tensor // [N, intermediate]
	if l.gateUp != nil {
		wide = torchx.GatedPair(c.Activation, l.gateUp.Apply(y, m.DType, p))
	} else {
		wide = torchx.Gated(c.Activation, m.Apply(l.gate, y, p), m.Apply(l.up, y, p))
	}
	return torchx.Keep(torchx.Add(x, m.Apply(&l.down, wide, p)))
}

// heads returns the queries of layer i, of the rows that `of` leaves, [N, Hq, D], and the keys and values that they may see, of rows
// y [N, H] after the norm.
func (m *Model) heads(i int, y, cos, sin torchx.Tensor, in *rows, of func(torchx.Tensor) torchx.Tensor,
	p *lora.Pass) (q, k, v torchx.Tensor) {
	l, c, n := &m.text.layers[i], m.cfg, y.Shape()[0]
	if l.qkv != nil && l.qNorm.Nil() && !l.bare { // queries and keys rotate as they are
		all := l.qkv.Apply(y, m.DType, p)
		if in.cache == nil {
			q, k, v = torchx.RopeHeads(all, cos, sin, c.Heads, c.KVHeads)
			return of(q), k, v
		}
		k, v = in.cache.K[i], in.cache.V[i]
		return of(torchx.RopeHeadsInto(all, cos, sin, c.Heads, k, v, in.cache.At)), k, v
	}
	if l.qkv != nil {
		all := l.qkv.Apply(y, m.DType, p)
		wide, narrow := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		q, k, v = of(torchx.Narrow(all, 1, 0, wide)), torchx.Narrow(all, 1, wide, narrow), torchx.Narrow(all, 1, wide+narrow, narrow)
	} else {
		q, k, v = m.Apply(l.q, of(y), p), m.Apply(l.k, y, p), m.Apply(l.v, y, p)
	}
	q = m.turn(l, torchx.Reshape(q, -1, c.Heads, c.HeadDim), l.qNorm, of(cos), of(sin))
	k = m.turn(l, torchx.Reshape(k, n, c.KVHeads, c.HeadDim), l.kNorm, cos, sin)
	v = torchx.Reshape(v, n, c.KVHeads, c.HeadDim)
	if in.cache != nil {
		k, v = in.cache.Store(i, k, v)
	}
	return q, k, v
}

// turn norms heads x [N, heads, D] where the layer has a norm for them, and rotates them where it rotates.
func (m *Model) turn(l *decoderLayer, x, norm, cos, sin torchx.Tensor) torchx.Tensor {
	if !norm.Nil() {
		x = torchx.RMSNorm(x, m.As(norm), m.cfg.Eps)
	}
	if l.bare {
		return x
	}
	return torchx.Rope(x, cos, sin)
}

// attend returns what the rows see [N, Hq, D].
func (in *rows) attend(q, k, v torchx.Tensor, scale float64) torchx.Tensor {
	if in.decode != nil {
		return torchx.AttendDecode(q, k, v, in.decode, scale)
	}
	return torchx.Attend(q, k, v, in.spans, scale)
}

// rotation returns cosines and sines [N, D/2] on the device.
func (m *Model) rotation(places []position) (cos, sin torchx.Tensor) {
	c, s := m.rope.at(places)
	half := m.cfg.HeadDim / 2
	return m.OnDevice(torchx.From(c, len(places), half)), m.OnDevice(torchx.From(s, len(places), half))
}
