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
	q, k, v, o          lora.Layer
	gate, up, down      lora.Layer
}

// decoder puts the language model together.
func (c *Config) decoder(b *tokens.Builder) decoder {
	h, q, kv := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	d := decoder{embed: b.Tensor("model.embed_tokens.weight", c.Vocab, h)}
	for i := range c.Layers {
		name := fmt.Sprintf("model.layers.%d.", i)
		attn, mlp := name+"self_attn.", name+"mlp."
		d.layers = append(d.layers, decoderLayer{
			inputNorm: b.Tensor(name+"input_layernorm.weight", h),
			q:         b.Linear(attn+"q_proj", h, q, true), k: b.Linear(attn+"k_proj", h, kv, true),
			v:        b.Linear(attn+"v_proj", h, kv, true),
			o:        b.Linear(attn+"o_proj", q, h, false),
			postNorm: b.Tensor(name+"post_attention_layernorm.weight", h),
			gate:     b.Linear(mlp+"gate_proj", h, c.Intermediate, false), up: b.Linear(mlp+"up_proj", h, c.Intermediate, false),
			down: b.Linear(mlp+"down_proj", c.Intermediate, h, false),
		})
	}
	d.norm = b.Tensor("model.norm.weight", h)
	if d.head = d.embed; !c.Tied {
		d.head = b.Tensor("lm_head.weight", c.Vocab, h)
	}
	return d
}

// cache holds keys and values of earlier tokens.
type cache struct {
	k, v []torchx.Tensor // a layer each: [rows, Hk, D]
	at   torchx.Tensor   // [N] int64: where the keys and values of the rows in work go
}

// make makes room for so many rows.
func (c *cache) make(m *Model, rows int) {
	for range m.cfg.Layers {
		c.k, c.v = append(c.k, m.Zeros(rows, m.cfg.KVHeads, m.cfg.HeadDim)), append(c.v, m.Zeros(rows, m.cfg.KVHeads, m.cfg.HeadDim))
	}
}

// store keeps the keys and values of layer i and returns all of them.
func (c *cache) store(i int, k, v torchx.Tensor) (allK, allV torchx.Tensor) {
	torchx.WriteRowsAt(c.k[i], c.at, k)
	torchx.WriteRowsAt(c.v[i], c.at, v)
	return c.k[i], c.v[i]
}

// rows are the decoder's input: N tokens of any number of sequences.
type rows struct {
	ids    []int64    // [N]
	places []position // [N]
	spans  []torchx.Span
	decode *torchx.DecodeSpans // instead of spans where not nil: what the rows of a resident decoding see

	media   torchx.Tensor // [M, H] vectors of images and videos, or none
	mediaAt []int64       // [M] the rows that they replace
	cache   *cache        // keys and values go there, and spans name its rows; nil: spans name rows of the input
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
		x = torchx.ReplaceRows(x, m.Int64s(in.mediaAt), in.media)
	}
	return x
}

// forward returns the last layer's rows after the final norm [N, H].
func (m *Model) forward(in *rows, p *lora.Pass) torchx.Tensor {
	x := m.embedRows(in)
	cos, sin := m.rotation(in.places)
	return m.layers(x, cos, sin, in, p)
}

// layers passes the decoder's input x [N, H] through all layers and the final norm.
func (m *Model) layers(x, cos, sin torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor {
	for i := range m.text.layers {
		layer := func(x torchx.Tensor) torchx.Tensor { return m.decoderLayer(i, x, cos, sin, in, p) }
		x = m.through(layer, x, in.cache == nil)
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
	y := torchx.RMSNorm(x, m.As(l.inputNorm), c.Eps)
	of, asks, after := func(x torchx.Tensor) torchx.Tensor { return x }, n, in
	if in.tail != nil && i == len(m.text.layers)-1 {
		at := m.Int64s(in.tail.rows)
		of = func(x torchx.Tensor) torchx.Tensor { return torchx.IndexSelect(x, 0, at) }
		asks, after = len(in.tail.rows), &rows{spans: in.tail.spans}
	}
	q := torchx.Rope(torchx.Reshape(m.Apply(&l.q, of(y), p), asks, c.Heads, c.HeadDim), of(cos), of(sin)) // [N, Hq, D]
	k := torchx.Rope(torchx.Reshape(m.Apply(&l.k, y, p), n, c.KVHeads, c.HeadDim), cos, sin)              // [N, Hk, D]
	v := torchx.Reshape(m.Apply(&l.v, y, p), n, c.KVHeads, c.HeadDim)
	if in.cache != nil {
		k, v = in.cache.store(i, k, v)
	}
	x, in, n = of(x), after, asks
	seen := in.attend(q, k, v, 1/math.Sqrt(float64(c.HeadDim)))
	x, y = torchx.AddRMSNorm(x, m.Apply(&l.o, torchx.Reshape(seen, n, c.Heads*c.HeadDim), p), m.As(l.postNorm), c.Eps)
	x = torchx.Add(x, m.Apply(&l.down, torchx.SwiGLU(m.Apply(&l.gate, y, p), m.Apply(&l.up, y, p)), p))
	return torchx.Keep(x)
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
