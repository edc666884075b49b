package pointer

import (
	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
)

// dropout applies training-time dropout; the zero value does nothing. Every mask is drawn for a query or a candidate by
// name, from counters: it depends on the seed, the place in the network and that name, not on which other queries are
// computed with it. A step in several parts (micro_batch) has the masks of the whole.
type dropout struct {
	policy       *Policy
	seed         uint64
	hidden, attn float64 // rates
}

// candidates names n rows of what belongs to candidates: the distinct ones of the batch, or each place of each pool.
func (d dropout) candidates(in *inputs, n int) []int {
	names := make([]int, 0, n)
	if n == in.u {
		return list.Convert[int](in.candidates)
	}
	for _, pool := range in.pools {
		for j := range in.k {
			name := 0 // padding
			if j < len(pool) {
				name = int(pool[j])
			}
			names = append(names, name)
		}
	}
	return names
}

// rows drops entries of the named rows of x.
func (d dropout) rows(x torchx.Tensor, rate float64, site string, layer int, names []int) torchx.Tensor {
	if rate == 0 {
		return x
	}
	width := x.Numel() / len(names)
	mask := make([]float32, len(names)*width)
	for i, name := range names {
		key := d.key(site, layer, name)
		for j := range width {
			mask[i*width+j] = kept(key, j, rate)
		}
	}
	return d.apply(x, mask)
}

// overPool drops weights [B, H, K] of queries over their candidates.
func (d dropout) overPool(a torchx.Tensor, layer int, in *inputs) torchx.Tensor {
	if d.attn == 0 {
		return a
	}
	heads := a.Shape()[1]
	mask := make([]float32, in.b*heads*in.k)
	for i, q := range in.queries {
		key := d.key("over the pool", layer, q)
		for h := range heads {
			for j := range in.pools[i] {
				mask[(i*heads+h)*in.k+j] = kept(key, j*heads+h, d.attn)
			}
		}
	}
	return d.apply(a, mask)
}

// withinPool drops weights [B or 1, H, K, K] of candidates over each other: pairs have the same mask in every pool.
func (d dropout) withinPool(a torchx.Tensor, layer int, in *inputs) torchx.Tensor {
	if d.attn == 0 {
		return a
	}
	shape := a.Shape()
	b, heads := shape[0], shape[1]
	mask := make([]float32, a.Numel())
	for i, pool := range in.pools[:b] {
		for j, from := range pool {
			key := d.key("within the pool", layer, int(from))
			for h := range heads {
				row := mask[((i*heads+h)*in.k+j)*in.k:][:in.k]
				for l, to := range pool {
					row[l] = kept(key, int(to)*heads+h, d.attn)
				}
			}
		}
	}
	return d.apply(a, mask)
}

func (d dropout) key(site string, layer, name int) uint64 {
	return rng.Key(int64(d.seed), site, layer, name)
}

// kept is what entry i of a stream is multiplied by: 0 with the probability rate.
func kept(key uint64, i int, rate float64) float32 {
	if rng.Uniform(key, i) < rate {
		return 0
	}
	return float32(1 / (1 - rate))
}

func (d dropout) apply(x torchx.Tensor, mask []float32) torchx.Tensor {
	return torchx.Mul(x, d.policy.move(torchx.From(mask, x.Shape()...)).To(x.DType()))
}
