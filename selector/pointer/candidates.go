package pointer

import (
	"fmt"
	"math"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
)

// CandidateEncoderOptions lets the candidates of a pool see each other before they are scored: Transformer layers
// (Vaswani et al. 2017, arXiv:1706.03762) with the norm before each part, without positions, since a pool is a set (v4-4):
//
//	c ← c + SelfAttention(LayerNorm(c)) / √h,  c ← c + (W₂ gelu(W₁ LayerNorm(c) + b₁) + b₂) / √h
//
// Candidates have about unit length, the parts' outputs unit entries: without 1/√h the outputs drown the candidates, and
// training at the rates of the other selectors ends at random selections (docs/log/recipes.md). The output weights of both parts
// start at 0, so that the selector starts as the one without these layers.
type CandidateEncoderOptions struct {
	// self-attention layers over the pool; 0 = none
	Layers int `koanf:"candidate_layers" range:"[0,1000]" when:"!head=none"`
	// attention heads; divides hidden_dim
	Heads int `koanf:"candidate_heads" range:"[1,inf)" constant:"true" when:"candidate_layers"`
	// hidden width of the feed-forward part
	FFNDim int `koanf:"candidate_ffn_dim" range:"[1,inf)" constant:"true" when:"candidate_layers"`
}

// weights lists the layers' parameters under the names of torch.nn.TransformerEncoderLayer.
func (o CandidateEncoderOptions) weights(h int) []weight {
	var w []weight
	for i := range o.Layers {
		w = append(w, layerWeights(fmt.Sprintf("candidate_encoder.%d.", i), h, o.FFNDim, zeros)...)
	}
	return w
}

// contextualise lets the candidates [U, h] attend to the others of their pools. It returns [K, h] for a shared pool, else one row
// for each place in each pool [B·K, h], and sets e.pool to match.
func (p *Policy) contextualise(in *inputs, drop dropout, e *encoded, rows torchx.Tensor) torchx.Tensor {
	h := p.opt.HiddenDim
	c := e.perQuery(rows)
	if e.pool.Nil() {
		c = torchx.Unsqueeze(c, 0)
	}
	for i := range p.opt.CandidateEncoder.Layers {
		c = p.selfAttention(i, in, drop, c)
	}
	if !e.pool.Nil() {
		e.pool = p.move(torchx.From(list.Convert[int64](stat.Indices(in.b*in.k)), in.b, in.k))
	}
	return torchx.Reshape(c, -1, h)
}

// selfAttention applies layer l to pools c [B or 1, K, h]. The output of each part is divided by √h.
func (p *Policy) selfAttention(l int, in *inputs, drop dropout, c torchx.Tensor) torchx.Tensor {
	var mask torchx.Tensor
	if !in.padding.Nil() {
		mask = torchx.Unsqueeze(torchx.Unsqueeze(in.padding, 1), 1) // [B, 1, 1, K]
	}
	names, h := c.Shape()[0]*in.k, float64(p.opt.HiddenDim)
	return p.transformerLayer(fmt.Sprintf("candidate_encoder.%d.", l), p.opt.CandidateEncoder.Heads, c, mask,
		func(a torchx.Tensor) torchx.Tensor { return drop.withinPool(a, l, in) },
		func(site string, y torchx.Tensor) torchx.Tensor {
			return drop.rows(torchx.Scale(y, 1/math.Sqrt(h)), drop.hidden, site, l, drop.candidates(in, names))
		})
}
