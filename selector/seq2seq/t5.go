package seq2seq

import (
	"fmt"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
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

func (m *Model) newT5(b *tokens.Builder) *t5 {
	c := m.cfg
	t := &t5{m: m, stacks: map[string]*t5Stack{}, act: torchx.Activations()[c.Activation]}
	for _, side := range sides() {
		s, stack := c.stack(side), &t5Stack{}
		for i := range s.Layers {
			block := fmt.Sprintf("%s.block.%d.layer.", side, i)
			attention := func(name string) attention { return c.attention(b, block+name, s, 1, false, "q", "k", "v", "o") }
			l := t5Layer{self: attention("0.SelfAttention")}
			if i == 0 {
				stack.bias = b.Tensor(block+"0.SelfAttention.relative_attention_bias.weight", c.Buckets, s.Heads)
			}
			l.selfNorm = b.Tensor(block+"0.layer_norm.weight", c.Width)
			last := block + "1."
			if side == "decoder" {
				l.cross, l.crossNorm = attention("1.EncDecAttention"), b.Tensor(block+"1.layer_norm.weight", c.Width)
				last = block + "2."
			}
			feed := last + "DenseReluDense."
			if c.Gated {
				l.gate, l.up = b.Linear(feed+"wi_0", c.Width, s.FF, false), b.Linear(feed+"wi_1", c.Width, s.FF, false)
			} else {
				l.up = b.Linear(feed+"wi", c.Width, s.FF, false)
			}
			l.down, l.ffNorm = b.Linear(feed+"wo", s.FF, c.Width, false), b.Tensor(last+"layer_norm.weight", c.Width)
			stack.layers = append(stack.layers, l)
		}
		stack.norm = b.Tensor(side+".final_layer_norm.weight", c.Width)
		t.stacks[side] = stack
	}
	return t
}

func (t *t5) cross(i int) *attention { return &t.stacks["decoder"].layers[i].cross }

func (t *t5) embed(in *rows) torchx.Tensor {
	if in.step == nil {
		in.bias = t.newBias(in)
	}
	return t.m.embedding(in)
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
	if m.cfg.Gated {
		up = torchx.Gated(m.cfg.Activation, m.Apply(&l.gate, y, p), up)
	} else {
		up = t.act(up)
	}
	return m.Apply(&l.down, up, p)
}
