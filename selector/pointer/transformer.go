package pointer

import (
	"fmt"
	"math"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
)

// TransformerOptions is a causal language model over the query and the examples chosen so far, in the manner of GPT-2
// (Radford et al. 2019): the selector that the others grew from (Lever-LM, arXiv:2312.10104). With unit vectors s_0 of the
// query and e_a of the chosen, and learned positions p_i:
//
//	x = [s_0 + p_0, e_1 + p_1, …, e_t + p_t],  s_t = normalise(s_0 + W·LayerNorm(Transformer(x))_t)
//
// Its layers are GPT-2's: the norm before each part, causal attention, gelu. W starts at 0, so that the start is the
// selector without it. The original scores with an output layer that has one row for each training example; here the state
// scores the pool, so that examples it was not trained on can be chosen.
type TransformerOptions struct {
	// layers
	Layers int `koanf:"layers" range:"[1,1000]"`
	// attention heads; divides hidden_dim
	Heads int `koanf:"heads" range:"[1,inf)"`
	// hidden width of the feed-forward part
	FFNDim int `koanf:"ffn_dim" range:"[1,inf)"`
}

const transformerState = "transformer"

func (o TransformerOptions) validate(all Options) error {
	if all.StateUpdate == transformerState && o.Heads > 0 && all.HiddenDim%o.Heads != 0 {
		return option.Errorf("transformer.heads", "want a divisor of hidden_dim = %d, got %d", all.HiddenDim, o.Heads)
	}
	return nil
}

// keys are in the metadata of selectors that have one.
func (o *TransformerOptions) keys() []key {
	return []key{intKey("transformer.layers", &o.Layers), intKey("transformer.heads", &o.Heads), intKey("transformer.ffn_dim", &o.FFNDim)}
}

// weights lists the parameters; positions has a row for the query and one for each distinct step.
func (o TransformerOptions) weights(opt Options, h int) []weight {
	w := []weight{{name: "state_transformer.positions", shape: []int{opt.DistinctSteps, h}, start: normal(0.02)}}
	for i := range o.Layers {
		pre := fmt.Sprintf("state_transformer.%d.", i)
		w = append(w,
			weight{name: pre + "norm1.weight", shape: []int{h}, start: constant(1)}, weight{name: pre + "norm1.bias", shape: []int{h}, start: zeros},
			weight{name: pre + "self_attn.in_proj_weight", shape: []int{3 * h, h}, start: xavier}, weight{name: pre + "self_attn.in_proj_bias", shape: []int{3 * h}, start: zeros},
			weight{name: pre + "self_attn.out_proj.weight", shape: []int{h, h}, start: kaiming}, weight{name: pre + "self_attn.out_proj.bias", shape: []int{h}, start: zeros},
			weight{name: pre + "norm2.weight", shape: []int{h}, start: constant(1)}, weight{name: pre + "norm2.bias", shape: []int{h}, start: zeros},
			weight{name: pre + "linear1.weight", shape: []int{o.FFNDim, h}, start: kaiming}, weight{name: pre + "linear1.bias", shape: []int{o.FFNDim}, start: zeros},
			weight{name: pre + "linear2.weight", shape: []int{h, o.FFNDim}, start: kaiming}, weight{name: pre + "linear2.bias", shape: []int{h}, start: zeros})
	}
	return append(w,
		weight{name: "state_transformer.norm.weight", shape: []int{h}, start: constant(1)}, weight{name: "state_transformer.norm.bias", shape: []int{h}, start: zeros},
		weight{name: "state_transformer.out.weight", shape: []int{h, h}, start: zeros})
}

// readOn returns the state [B, N, h] behind a prefix [B, N, L, h] that starts with the query's.
func (p *Policy) readOn(prefix torchx.Tensor) torchx.Tensor {
	shape, get := prefix.Shape(), p.params.Get
	b, n, l, h := shape[0], shape[1], shape[2], shape[3]
	positions := make([]torchx.Tensor, l)
	for i := range positions {
		positions[i] = p.stepRow("state_transformer.positions", i)
	}
	x := torchx.Reshape(torchx.Add(prefix, torchx.Cat(0, positions...)), b*n, l, h)
	later := make([]bool, l*l) // keys behind a row's own
	for i := range l {
		for j := i + 1; j < l; j++ {
			later[i*l+j] = true
		}
	}
	mask := p.move(torchx.From(later, 1, 1, l, l))
	for i := range p.opt.Transformer.Layers {
		x = p.causalLayer(fmt.Sprintf("state_transformer.%d.", i), x, mask)
	}
	last := torchx.Squeeze(torchx.Narrow(x, 1, l-1, 1), 1) // [B·N, h]
	last = torchx.LayerNorm(last, get("state_transformer.norm.weight"), get("state_transformer.norm.bias"), 1e-5)
	last = torchx.Reshape(torchx.Linear(last, get("state_transformer.out.weight"), torchx.Tensor{}), b, n, h)
	start := torchx.Squeeze(torchx.Narrow(prefix, 2, 0, 1), 2) // [B, N, h]
	return torchx.Normalize(torchx.Add(start, last))
}

// causalLayer is one layer over sequences x [R, L, h].
func (p *Policy) causalLayer(pre string, x, mask torchx.Tensor) torchx.Tensor {
	shape, heads, w := x.Shape(), p.opt.Transformer.Heads, func(name string) torchx.Tensor { return p.params.Get(pre + name) }
	r, l, h := shape[0], shape[1], shape[2]
	dh := h / heads
	y := torchx.Linear(torchx.LayerNorm(x, w("norm1.weight"), w("norm1.bias"), 1e-5), w("self_attn.in_proj_weight"), w("self_attn.in_proj_bias")) // [R, L, 3h]
	split := func(i int) torchx.Tensor {
		return torchx.Transpose(torchx.Reshape(torchx.Narrow(y, 2, i*h, h), r, l, heads, dh), 1, 2) // [R, H, L, dh]
	}
	score := torchx.MatMul(torchx.Scale(split(0), 1/math.Sqrt(float64(dh))), torchx.Transpose(split(1), 2, 3)) // [R, H, L, L]
	attn := torchx.MatMul(torchx.Softmax(torchx.MaskedFill(score, mask, impossible), -1), split(2))            // [R, H, L, dh]
	attn = torchx.Reshape(torchx.Transpose(attn, 1, 2), r, l, h)
	x = torchx.Add(x, torchx.Linear(attn, w("self_attn.out_proj.weight"), w("self_attn.out_proj.bias")))
	hidden := torchx.GELU(torchx.Linear(torchx.LayerNorm(x, w("norm2.weight"), w("norm2.bias"), 1e-5), w("linear1.weight"), w("linear1.bias"))) // [R, L, ffn]
	return torchx.Add(x, torchx.Linear(hidden, w("linear2.weight"), w("linear2.bias")))
}
