package seq2seq

import (
	"fmt"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
)

// t5 is the arithmetic of T5 (spec §5): norms before, no biases, no scale in attention, and relative positions as a
// bias on the scores of self-attention, from one table a stack.
type t5 struct {
	m      *Model
	stacks map[string]*t5Stack
	act    func(torchx.Tensor) torchx.Tensor
}

type t5Stack struct {
	layers []t5Layer
	norm   torchx.Tensor
	bias   torchx.Tensor // [buckets, heads]
}

type t5Layer struct {
	selfNorm, crossNorm, ffNorm torchx.Tensor
	self, cross                 attention
	gate, up, down              lora.Layer // without gate: down(act(up))
}

func (m *Model) newT5() *t5 {
	c := m.cfg
	t := &t5{m: m, stacks: map[string]*t5Stack{}, act: activations()[c.Activation]}
	for _, side := range sides() {
		s := c.stack(side)
		stack := &t5Stack{norm: m.Weight(side + ".final_layer_norm.weight"), bias: m.Weight(side + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight")}
		for i := range s.Layers {
			block := fmt.Sprintf("%s.block.%d.layer.", side, i)
			attention := func(name string) attention { return m.newAttention(block+name, s, 1, false, "q", "k", "v", "o") }
			l := t5Layer{selfNorm: m.Weight(block + "0.layer_norm.weight"), self: attention("0.SelfAttention")}
			last := block + "1."
			if side == "decoder" {
				l.crossNorm, l.cross = m.Weight(block+"1.layer_norm.weight"), attention("1.EncDecAttention")
				last = block + "2."
			}
			l.ffNorm, l.down = m.Weight(last+"layer_norm.weight"), m.Layer(last+"DenseReluDense.wo", false)
			if c.Gated {
				l.gate, l.up = m.Layer(last+"DenseReluDense.wi_0", false), m.Layer(last+"DenseReluDense.wi_1", false)
			} else {
				l.up = m.Layer(last+"DenseReluDense.wi", false)
			}
			stack.layers = append(stack.layers, l)
		}
		t.stacks[side] = stack
	}
	return t
}

func (t *t5) cross(i int) *attention { return &t.stacks["decoder"].layers[i].cross }

func (t *t5) embed(in *rows) torchx.Tensor {
	in.bias = t.newBias(in)
	return t.m.embedding(in.ids)
}

func (t *t5) finish(in *rows, x torchx.Tensor) torchx.Tensor {
	return torchx.RMSNorm(x, t.m.As(t.stacks[in.side].norm), t.m.cfg.Eps)
}

func (t *t5) layer(i int, x, memory torchx.Tensor, in *rows, p *lora.Pass) torchx.Tensor {
	defer torchx.Scope()()
	m, l, eps := t.m, &t.stacks[in.side].layers[i], t.m.cfg.Eps
	y := torchx.RMSNorm(x, m.As(l.selfNorm), eps)
	seen := m.attendSelf(&l.self, i, y, in, p)
	if in.side == "decoder" {
		x, y = torchx.AddRMSNorm(x, seen, m.As(l.crossNorm), eps)
		seen = m.attendCross(&l.cross, i, y, memory, in, p)
	}
	x, y = torchx.AddRMSNorm(x, seen, m.As(l.ffNorm), eps)
	return torchx.Keep(torchx.Add(x, t.feedForward(l, y, p)))
}

func (t *t5) feedForward(l *t5Layer, y torchx.Tensor, p *lora.Pass) torchx.Tensor {
	m := t.m
	up := m.Apply(&l.up, y, p)
	switch {
	case !m.cfg.Gated:
		up = t.act(up)
	case m.cfg.Activation == "silu" || m.cfg.Activation == "swish":
		up = torchx.SwiGLU(m.Apply(&l.gate, y, p), up)
	default:
		up = torchx.Mul(t.act(m.Apply(&l.gate, y, p)), up)
	}
	return m.Apply(&l.down, up, p)
}
