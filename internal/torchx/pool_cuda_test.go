package torchx

import (
	"fmt"

	"fulcrum/internal/rng"
)

// poolCases are the operations over pools and of a pointer's gradients. On the CPU, the reference, they are composed.
func poolCases() []kernelCase {
	var cases []kernelCase
	add := func(name string, f func(in []Tensor, on func(Tensor) Tensor) []Tensor, shapes ...[]int) {
		cases = append(cases, kernelCase{name: fmt.Sprint(name, shapes), shapes: shapes, f: f})
	}
	single := func(x Tensor) Tensor { // the kernels are float32's
		if x.DType() == Float64 {
			return x
		}
		return x.To(Float32)
	}
	for _, c := range []struct{ b, heads, n, k, d, u, padded int }{{2, 1, 1, 3, 5, 4, 0}, {3, 2, 6, 17, 36, 40, 4}, {7, 1, 9, 64, 256, 128, 0},
		{33, 4, 3, 20, 300, 24, 3}, {256, 1, 6, 64, 256, 64, 0}, {5, 1, 20, 100, 768, 700, 1}} {
		for _, own := range []bool{true, false} {
			c := c
			if !own {
				c.k, c.padded = c.u, 0
			}
			p := poolOf(c.b, c.k, c.u, c.padded)
			name := fmt.Sprint(" own ", own, " padded ", c.padded, " k ", c.k)
			add("pool_attend"+name, func(in []Tensor, on func(Tensor) Tensor) []Tensor {
				u, rows, pool := single(in[0]), single(in[1]), p.on(own, on)
				if PoolRuns(u) {
					return []Tensor{PoolAttend(u, rows, pool, 0.3)}
				}
				each := pool.perQuery(rows)
				score := Scale(MatMul(u, Transpose(each, -2, -1)), 0.3)
				if !pool.Padding.Nil() {
					score = MaskedFill(score, Unsqueeze(pool.Padding, 1), -1e9)
				}
				return []Tensor{MatMul(Softmax(score, -1), each)}
			}, []int{c.b, c.heads, c.d}, []int{c.u, c.d})
			if !own {
				continue
			}
			add("pool_score"+name, func(in []Tensor, on func(Tensor) Tensor) []Tensor {
				q, rows, pool := single(in[0]), single(in[1]), p.on(own, on)
				var z Tensor
				if PoolRuns(q) {
					z = PoolScore(q, rows, pool)
				} else {
					z = MatMul(q, Transpose(pool.perQuery(rows), -2, -1))
				}
				if !pool.Padding.Nil() { // no gradient comes from there
					z = MaskedFill(z, Unsqueeze(pool.Padding, 1), 0)
				}
				return []Tensor{z}
			}, []int{c.b, c.n, c.d}, []int{c.u, c.d})
			add("embedding"+name, func(in []Tensor, on func(Tensor) Tensor) []Tensor {
				return []Tensor{Embedding(single(in[0]), on(From(p.index[:c.b*3], c.b, 3)))}
			}, []int{c.u, c.d})
		}
		add("bias", func(in []Tensor, _ func(Tensor) Tensor) []Tensor { return []Tensor{Linear(in[0], in[1], in[2])} },
			[]int{c.b * c.n, 8}, []int{c.d, 8}, []int{c.d})
	}
	pointerCases(add, single)
	return cases
}

// pointerCases are the gate and the losses, added to the cases by add.
func pointerCases(add func(string, func(in []Tensor, on func(Tensor) Tensor) []Tensor, ...[]int), single func(Tensor) Tensor) {
	for _, c := range [][4]int{{2, 1, 1, 5}, {7, 1, 5, 256}, {3, 4, 4, 300}, {256, 1, 5, 256}} {
		s, n := []int{c[0], c[1], c[3]}, []int{c[0], c[2], c[3]}
		add("gate", func(in []Tensor, _ func(Tensor) Tensor) []Tensor {
			s, p, c, q := single(in[0]), single(in[1]), single(in[2]), single(in[3])
			if PoolRuns(s) {
				return []Tensor{Gate(s, p, c, q)}
			}
			return []Tensor{Normalize(Add(c, Mul(Sigmoid(Add(p, q)), Sub(s, c))))}
		}, s, s, n, n)
	}
	for _, c := range [][3]int{{4, 2, 1}, {3, 5, 2}, {256, 5, 2}, {100, 16, 4}} {
		group := []int{c[0], c[1]}
		constant := func(name string, on func(Tensor) Tensor, as DType) Tensor {
			return on(From(operands(name, group)[0], group...).To(as))
		}
		for kind := Given; kind <= K3Reversed; kind++ {
			shapes := [][]int{{c[0], c[1], c[2]}}
			if kind == Given {
				shapes = append(shapes, group)
			}
			add(fmt.Sprint("surrogate ", kind), func(in []Tensor, on func(Tensor) Tensor) []Tensor {
				logp := single(in[0])
				s := Surrogate{Estimate: kind, Limit: 1.5, Low: 0.2, High: 0.3, Old: constant("old", on, logp.DType()),
					Adv: constant("adv", on, logp.DType()), Weight: constant("weight", on, logp.DType()), Ref: constant("ref", on, logp.DType())}
				var up Upload
				s.Share, s.MinusShare, s.Beta = up.Factor(0.25, logp), up.Factor(-0.25, logp), up.Factor(0.5, logp)
				up.Send(logp)
				if kind == Given {
					s.Penalty = single(in[1])
				}
				if PoolRuns(logp) {
					l := s.Loss(logp)
					nll := WeightedLogp(logp, s.Weight, s.MinusShare)
					return []Tensor{l.Loss, nll, l.PPO, l.KL, l.Sequences, l.LogRatios, l.Penalties}
				}
				return s.composed(logp)
			}, shapes...)
		}
	}
}

// composed is Loss by libtorch's operations, as phases/grpo composes it.
func (s Surrogate) composed(logp Tensor) []Tensor {
	sequences := Sum(logp, 2)
	d := Sub(sequences, s.Old)
	ratio := Exp(Clamp(d, -s.Limit, s.Limit))
	gain := Minimum(Mul(ratio, s.Adv), Mul(Clamp(ratio, 1-s.Low, 1+s.High), s.Adv))
	ppo := s.MinusShare.Times(Sum(Mul(gain, s.Weight)))
	r := Sub(sequences, s.Ref)
	cut := Clamp(r, -s.Limit, s.Limit)
	var kl Tensor
	switch s.Estimate {
	case Given:
		kl = s.Penalty
	case K1:
		kl = r
	case K2:
		kl = Scale(Square(r), 0.5)
	case K3:
		kl = AddScalar(Add(Exp(Neg(cut)), cut), -1)
	case K3Reversed:
		kl = Sub(AddScalar(Exp(cut), -1), cut)
	}
	penalty := s.Share.Times(Sum(Mul(kl, s.Weight)))
	nll := s.MinusShare.Times(Sum(Mul(sequences, s.Weight)))
	read := []Tensor{ppo, penalty, sequences, d, kl}
	for i, x := range read {
		read[i] = Detach(x)
	}
	return append([]Tensor{Add(ppo, s.Beta.Times(penalty)), nll}, read...)
}

// hostPool is a Pool on the host.
type hostPool struct {
	b, k, u       int
	index         []int64
	padding       []bool
	order, starts []int32
}

// poolOf draws pools of k among u rows, of which the last padded places of every other pool are none and point at row 0.
func poolOf(b, k, u, padded int) hostPool {
	p, r := hostPool{b: b, k: k, u: u}, rng.New(3, "pools")
	for i := range b {
		for j := range k {
			none := j >= k-padded && i%2 == 1
			p.padding = append(p.padding, none)
			if none {
				p.index = append(p.index, 0)
			} else {
				p.index = append(p.index, int64(r.IntN(u)))
			}
		}
	}
	for row := range u {
		p.starts = append(p.starts, int32(len(p.order)))
		for at, x := range p.index {
			if x == int64(row) && !p.padding[at] {
				p.order = append(p.order, int32(at))
			}
		}
	}
	p.starts = append(p.starts, int32(len(p.order)))
	if padded == 0 {
		p.padding = nil
	}
	return p
}

func (p hostPool) on(own bool, on func(Tensor) Tensor) (pool Pool) {
	if own {
		pool.Index, pool.Order = on(From(p.index, p.b, p.k)), on(From(p.order, len(p.order)))
		pool.Starts = on(From(p.starts, len(p.starts)))
	}
	if p.padding != nil {
		pool.Padding = on(From(p.padding, p.b, p.k))
	}
	return pool
}

func (p Pool) perQuery(rows Tensor) Tensor {
	if p.Index.Nil() {
		return rows
	}
	return Embedding(rows, p.Index)
}
