package pointer

import (
	"fmt"
	"math"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
)

// CandidateEncoderOptions lets the candidates of a pool see each other before they are scored: Transformer layers
// (Vaswani et al. 2017, arXiv:1706.03762) with the norm before each part, without positions, since a pool is a set (v4-4):
//
//	c ← c + SelfAttention(LayerNorm(c)) / √h,  c ← c + (W₂ gelu(W₁ LayerNorm(c) + b₁) + b₂) / √h
//
// Candidates have about unit length, the parts' outputs unit entries: without 1/√h the layers drown what they refine, and
// training at the rates of the other selectors ends at random selections (docs/log.md). The output weights of both parts start at 0, so that the start is the selector without these layers.
type CandidateEncoderOptions struct {
	// self-attention layers over the pool; 0 = none
	Layers int `koanf:"layers" range:"[0,1000]"`
	// attention heads; divides hidden_dim
	Heads int `koanf:"heads" range:"[1,inf)"`
	// hidden width of the feed-forward part
	FFNDim int `koanf:"ffn_dim" range:"[1,inf)"`
}

func (o CandidateEncoderOptions) validate(h int) error {
	if o.Layers > 0 && o.Heads > 0 && h%o.Heads != 0 {
		return option.Errorf("candidate_encoder.heads", "want a divisor of hidden_dim = %d, got %d", h, o.Heads)
	}
	return nil
}

// weights lists the layers' parameters under the names of torch.nn.TransformerEncoderLayer.
func (o CandidateEncoderOptions) weights(h int) []weight {
	var w []weight
	for i := range o.Layers {
		pre := fmt.Sprintf("candidate_encoder.%d.", i)
		w = append(w,
			weight{name: pre + "norm1.weight", shape: []int{h}, start: constant(1)}, weight{name: pre + "norm1.bias", shape: []int{h}, start: zeros},
			weight{name: pre + "self_attn.in_proj_weight", shape: []int{3 * h, h}, start: xavier}, weight{name: pre + "self_attn.in_proj_bias", shape: []int{3 * h}, start: zeros},
			weight{name: pre + "self_attn.out_proj.weight", shape: []int{h, h}, start: zeros}, weight{name: pre + "self_attn.out_proj.bias", shape: []int{h}, start: zeros},
			weight{name: pre + "norm2.weight", shape: []int{h}, start: constant(1)}, weight{name: pre + "norm2.bias", shape: []int{h}, start: zeros},
			weight{name: pre + "linear1.weight", shape: []int{o.FFNDim, h}, start: kaiming}, weight{name: pre + "linear1.bias", shape: []int{o.FFNDim}, start: zeros},
			weight{name: pre + "linear2.weight", shape: []int{h, o.FFNDim}, start: zeros}, weight{name: pre + "linear2.bias", shape: []int{h}, start: zeros})
	}
	return w
}

// contextualise turns the candidates [U, h] into what they are among the others of their pools: [K, h] where the pool is
// shared, else one row for each place in each pool [B·K, h], and e.pool says so.
func (p *Policy) contextualise(in *inputs, drop dropout, e *encoded, rows torchx.Tensor) torchx.Tensor {
	h := p.opt.HiddenDim
	c := e.spread(rows)
	if e.pool.Nil() {
		c = torchx.Unsqueeze(c, 0)
	}
	for i := range p.opt.CandidateEncoder.Layers {
		c = p.selfAttention(i, in, drop, c)
	}
	if !e.pool.Nil() {
		places := make([]int64, in.b*in.k)
		for i := range places {
			places[i] = int64(i)
		}
		e.pool = p.move(torchx.From(places, in.b, in.k))
	}
	return torchx.Reshape(c, -1, h)
}

// selfAttention is layer l over pools c [B or 1, K, h].
func (p *Policy) selfAttention(l int, in *inputs, drop dropout, c torchx.Tensor) torchx.Tensor {
	pre := fmt.Sprintf("candidate_encoder.%d.", l)
	h, heads := p.opt.HiddenDim, p.opt.CandidateEncoder.Heads
	dh, w := h/heads, func(name string) torchx.Tensor { return p.params.Get(pre + name) }
	b := c.Shape()[0]

	x := torchx.Linear(torchx.LayerNorm(c, w("norm1.weight"), w("norm1.bias"), 1e-5), w("self_attn.in_proj_weight"), w("self_attn.in_proj_bias")) // [B, K, 3h]
	split := func(i int) torchx.Tensor {
		return torchx.Transpose(torchx.Reshape(torchx.Narrow(x, 2, i*h, h), b, in.k, heads, dh), 1, 2) // [B, H, K, dh]
	}
	score := torchx.MatMul(torchx.Scale(split(0), 1/math.Sqrt(float64(dh))), torchx.Transpose(split(1), 2, 3)) // [B, H, K, K]
	if !in.padding.Nil() {
		score = torchx.MaskedFill(score, torchx.Unsqueeze(torchx.Unsqueeze(in.padding, 1), 1), impossible)
	}
	attn := torchx.MatMul(drop.withinPool(torchx.Softmax(score, -1), l, in), split(2)) // [B, H, K, dh]
	attn = torchx.Reshape(torchx.Transpose(attn, 1, 2), b, in.k, h)
	attn = torchx.Scale(torchx.Linear(attn, w("self_attn.out_proj.weight"), w("self_attn.out_proj.bias")), 1/math.Sqrt(float64(h)))
	c = torchx.Add(c, drop.rows(attn, drop.hidden, "attended", l, drop.candidates(in, b*in.k)))

	hidden := torchx.GELU(torchx.Linear(torchx.LayerNorm(c, w("norm2.weight"), w("norm2.bias"), 1e-5), w("linear1.weight"), w("linear1.bias"))) // [B, K, ffn]
	hidden = torchx.Scale(torchx.Linear(hidden, w("linear2.weight"), w("linear2.bias")), 1/math.Sqrt(float64(h)))
	return torchx.Add(c, drop.rows(hidden, drop.hidden, "fed forward", l, drop.candidates(in, b*in.k)))
}
