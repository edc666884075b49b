package seq2seq

import (
	"fmt"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// positionOffset is how far BART's positions are shifted: the first rows of its tables are never used.
const positionOffset = 2

// bart is the arithmetic of BART (spec §6): norms after, biases everywhere, learned positions.
type bart struct {
	m      *Model
	stacks map[string]*bartStack
	act    func(torchx.Tensor) torchx.Tensor
}

type bartStack struct {
	positions torchx.Tensor // [positions + 2, d]
	norm      layerNorm     // of the embeddings
	layers    []bartLayer
}

type bartLayer struct {
	self, cross                 attention
	selfNorm, crossNorm, ffNorm layerNorm
	up, down                    lora.Layer
}

type layerNorm struct{ weight, bias torchx.Tensor }

func (m *Model) newBART(b *tokens.Builder) *bart {
	c := m.cfg
	net := &bart{m: m, stacks: map[string]*bartStack{}, act: torchx.Activations()[c.Activation]}
	norm := func(name string) layerNorm {
		return layerNorm{b.Tensor(name+".weight", c.Width), b.Tensor(name+".bias", c.Width)}
	}
	for _, side := range sides() {
		s, at := c.stack(side), "model."+side+"."
		stack := &bartStack{positions: b.Tensor(at+"embed_positions.weight", c.Positions+positionOffset, c.Width),
			norm: norm(at + "layernorm_embedding")}
		for i := range s.Layers {
			layer := fmt.Sprintf("%slayers.%d.", at, i)
			attention := func(name string) (attention, layerNorm) {
				return c.attention(b, layer+name, s, 1/sqrt(s.HeadDim), true, "q_proj", "k_proj", "v_proj", "out_proj"),
					norm(layer + name + "_layer_norm")
			}
			var l bartLayer
			l.self, l.selfNorm = attention("self_attn")
			if side == "decoder" {
				l.cross, l.crossNorm = attention("encoder_attn")
			}
			l.up, l.down = b.Linear(layer+"fc1", c.Width, s.FF, true), b.Linear(layer+"fc2", s.FF, c.Width, true)
			l.ffNorm = norm(layer + "final_layer_norm")
			stack.layers = append(stack.layers, l)
		}
		net.stacks[side] = stack
	}
	return net
}

func (b *bart) cross(i int) *attention { return &b.stacks["decoder"].layers[i].cross }

func (b *bart) embed(in *rows) torchx.Tensor {
	m, s := b.m, b.stacks[in.side]
	x := b.withoutPads(m.embedding(in), in.ids)
	if m.cfg.EmbedScale != 1 {
		x = torchx.Scale(x, m.cfg.EmbedScale)
	}
	if in.step != nil {
		table := torchx.Narrow(s.positions, 0, positionOffset, s.positions.Shape()[0]-positionOffset)
		return b.norm(torchx.Add(x, torchx.Embedding(table, in.step.place).To(m.DType)), s.norm) // all rows are at one place
	}
	at := list.Map(in.at, func(p int64) int64 { return p + positionOffset })
	return b.norm(torchx.Add(x, torchx.Embedding(s.positions, m.Int64s(at)).To(m.DType)), s.norm)
}

// withoutPads stops the gradient of pads' rows, which the public implementation never trains by looking them up. Sources
// have none, but a completion may be drawn with one inside.
func (b *bart) withoutPads(x torchx.Tensor, ids []int64) torchx.Tensor {
	if !x.RequiresGrad() || !slices.Contains(ids, b.m.cfg.generation.Pad) {
		return x
	}
	pads := list.Map(ids, func(id int64) bool { return id == b.m.cfg.generation.Pad })
	return torchx.Where(b.m.OnDevice(torchx.From(pads, len(ids), 1)), torchx.Detach(x), x)
}

func (b *bart) norm(x torchx.Tensor, n layerNorm) torchx.Tensor {
	return torchx.LayerNorm(x, b.m.As(n.weight), b.m.As(n.bias), b.m.cfg.Eps)
}

func (b *bart) finish(_ *rows, x torchx.Tensor) torchx.Tensor { return x }

func (b *bart) layer(i int, x, memory torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor {
	defer torchx.Scope()()
	m, l := b.m, &b.stacks[in.side].layers[i]
	x = b.norm(torchx.Add(x, m.attendSelf(&l.self, i, x, in, p)), l.selfNorm)
	if in.side == "decoder" {
		x = b.norm(torchx.Add(x, m.attendCross(&l.cross, i, x, memory, in, p)), l.crossNorm)
	}
	y := m.Apply(&l.down, b.act(m.Apply(&l.up, x, p)), p)
	return torchx.Keep(b.norm(torchx.Add(x, y), l.ffNorm))
}
