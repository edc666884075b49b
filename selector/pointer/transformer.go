package pointer

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
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

// keys are in the metadata of selectors that have one.
func (o *TransformerOptions) keys() []key {
	return []key{{"transformer.layers", &o.Layers}, {"transformer.heads", &o.Heads}, {"transformer.ffn_dim", &o.FFNDim}}
}

// weights lists the parameters; positions has a row for the query and one for each distinct step.
func (o TransformerOptions) weights(opt Options, h int) []weight {
	w := []weight{{name: "state_transformer.positions", shape: []int{opt.DistinctSteps, h}, start: normal(0.02)}}
	for i := range o.Layers {
		w = append(w, layerWeights(fmt.Sprintf("state_transformer.%d.", i), h, o.FFNDim, kaiming)...)
	}
	w = append(w, normWeights("state_transformer.norm.", h)...)
	return append(w, weight{name: "state_transformer.out.weight", shape: []int{h, h}, start: zeros})
}

// readOn returns the state [B, N, h] behind a prefix [B, N, L, h] that starts with the query's.
func (p *Policy) readOn(prefix torchx.Tensor) torchx.Tensor {
	shape, get := prefix.Shape(), p.params.Get
	b, n, l, h := shape[0], shape[1], shape[2], shape[3]
	positions := list.Map(stat.Indices(l), func(i int) torchx.Tensor { return p.stepRow("state_transformer.positions", i) })
	x := torchx.Reshape(torchx.Add(prefix, torchx.Cat(0, positions...)), b*n, l, h)
	later := make([]bool, l*l) // keys behind a row's own
	for i := range l {
		for j := i + 1; j < l; j++ {
			later[i*l+j] = true
		}
	}
	mask := p.move(torchx.From(later, 1, 1, l, l))
	for i := range p.opt.Transformer.Layers {
		x = p.transformerLayer(fmt.Sprintf("state_transformer.%d.", i), p.opt.Transformer.Heads, x, mask,
			func(a torchx.Tensor) torchx.Tensor { return a }, func(_ string, y torchx.Tensor) torchx.Tensor { return y })
	}
	last := torchx.Squeeze(torchx.Narrow(x, 1, l-1, 1), 1) // [B·N, h]
	last = torchx.LayerNorm(last, get("state_transformer.norm.weight"), get("state_transformer.norm.bias"), 1e-5)
	last = torchx.Reshape(torchx.Linear(last, get("state_transformer.out.weight"), torchx.Tensor{}), b, n, h)
	start := torchx.Squeeze(torchx.Narrow(prefix, 2, 0, 1), 2) // [B, N, h]
	return torchx.Normalize(torchx.Add(start, last))
}

// transformerLayer is one layer over sequences x [R, L, h], with masked attention: mask is true where a row must not look,
// undefined where it may look everywhere. weigh sees the attention weights, and part what each of both parts adds.
func (p *Policy) transformerLayer(pre string, heads int, x, mask torchx.Tensor, weigh func(a torchx.Tensor) torchx.Tensor,
	part func(site string, y torchx.Tensor) torchx.Tensor) torchx.Tensor {
	linear := func(name string, y torchx.Tensor) torchx.Tensor {
		return torchx.Linear(y, p.params.Get(pre+name+"weight"), p.params.Get(pre+name+"bias"))
	}
	norm := func(name string) torchx.Tensor {
		return torchx.LayerNorm(x, p.params.Get(pre+name+".weight"), p.params.Get(pre+name+".bias"), 1e-5)
	}
	r, l, h := x.Shape()[0], x.Shape()[1], x.Shape()[2]
	qkv := linear("self_attn.in_proj_", norm("norm1")) // [R, L, 3h]
	split := func(i int) torchx.Tensor {
		return torchx.Transpose(torchx.Reshape(torchx.Narrow(qkv, 2, i*h, h), r, l, heads, h/heads), 1, 2) // [R, H, L, dh]
	}
	score := torchx.MatMul(torchx.Scale(split(0), 1/math.Sqrt(float64(h/heads))), torchx.Transpose(split(1), 2, 3)) // [R, H, L, L]
	if !mask.Nil() {
		score = torchx.MaskedFill(score, mask, impossible)
	}
	seen := torchx.MatMul(weigh(torchx.Softmax(score, -1)), split(2)) // [R, H, L, dh]
	x = torchx.Add(x, part("attended", linear("self_attn.out_proj.", torchx.Reshape(torchx.Transpose(seen, 1, 2), r, l, h))))
	return torchx.Add(x, part("fed forward", linear("linear2.", torchx.GELU(linear("linear1.", norm("norm2"))))))
}

// layerWeights lists a layer's parameters under the names of torch.nn.TransformerEncoderLayer. The output weights of both
// parts start as out says.
func layerWeights(pre string, h, ffn int, out start) []weight {
	return slices.Concat(normWeights(pre+"norm1.", h),
		linearWeights(pre+"self_attn.in_proj_", h, 3*h, xavier), linearWeights(pre+"self_attn.out_proj.", h, h, out),
		normWeights(pre+"norm2.", h), linearWeights(pre+"linear1.", h, ffn, kaiming), linearWeights(pre+"linear2.", ffn, h, out))
}

func normWeights(pre string, h int) []weight {
	return []weight{{name: pre + "weight", shape: []int{h}, start: constant(1)}, {name: pre + "bias", shape: []int{h}, start: zeros}}
}

// linearWeights lists a linear layer's parameters; its bias starts at 0.
func linearWeights(pre string, in, out int, start start) []weight {
	return []weight{{name: pre + "weight", shape: []int{out, in}, start: start}, {name: pre + "bias", shape: []int{out}, start: zeros}}
}
