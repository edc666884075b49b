package seq2seq

import (
	"math"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// resident is decoding with its state on the device: what changes from step to step are numbers in tensors that stay where they
// are. It implements tokens.Decoding. All rows are at the same place.
type resident struct {
	m           *Model
	heads, dim  int
	max         int             // tokens of a row that there is room for
	k, v        []torchx.Tensor // a layer each: [rows·H·max, D]
	scores      torchx.Tensor   // [max, H or 1, max] float32: what is added to the scores of a query at each place; keys that follow it never
	rows, place torchx.Tensor   // [rows·H] int64 where the next keys and values go; [1] int64 the place in the completions
	ids         torchx.Tensor   // [rows] int64 the tokens in work

	crossK, crossV []torchx.Tensor    // a layer each: [source rows, H, D]
	source         torchx.DecodeSpans // of each row
}

func (m *Model) BeginResident(sources [][]int64, all []*tokens.Sequence, opt *GenerateOptions) (tokens.Decoding, error) {
	if err := m.settle(sources, all, opt); err != nil {
		return nil, err
	}
	d := m.prefill(sources, 0, opt.MaxNewTokens)
	s, n := m.cfg.Decoder, len(all)
	r := &resident{m: m, heads: s.Heads, dim: s.HeadDim, max: opt.MaxNewTokens, crossK: d.cache.crossK, crossV: d.cache.crossV}
	for range s.Layers {
		r.k, r.v = append(r.k, m.Zeros(n*s.Heads*r.max, s.HeadDim)), append(r.v, m.Zeros(n*s.Heads*r.max, s.HeadDim))
	}
	first, length := make([]int32, n+1), make([]int32, n) // one start more, which saves a copy
	for i, of := range all {
		span := d.sources[of.Prompt]
		first[i], length[i] = int32(span.Own), int32(span.OwnLen)
		r.source.MaxOwn = max(r.source.MaxOwn, span.OwnLen)
	}
	r.source.Own, r.source.OwnLen = m.OnDevice(torchx.From(first, n+1)), m.OnDevice(torchx.From(length, n))
	r.rows, r.place = r.starts(n, 0), m.Int64s([]int64{0})
	r.scores = m.OnDevice(r.visible())
	if b := d.cache.bias; b != nil { // [H, distances], distance 0 in the last column
		var at []int64
		for query := range r.max {
			for key := range r.max {
				at = append(at, int64(b.zero+min(key-query, 0)))
			}
		}
		scores := torchx.Reshape(torchx.IndexSelect(b.scores, 1, m.Int64s(at)), r.heads, r.max, r.max)
		r.scores = torchx.Add(torchx.Transpose(scores, 0, 1), r.scores)
	}
	return r, nil
}

// visible returns [max, 1, max]: 0 for keys up to the query's place, -∞ for later ones.
func (r *resident) visible() torchx.Tensor {
	z := make([]float32, r.max*r.max)
	for i := range z {
		if i%r.max > i/r.max {
			z[i] = float32(math.Inf(-1))
		}
	}
	return torchx.From(z, r.max, 1, r.max)
}

// starts returns where keys and values at a place of n rows go [n·H].
func (r *resident) starts(n, place int) torchx.Tensor {
	return r.m.Int64s(list.Make(n*r.heads, func(i int) int64 { return int64(i*r.max + place) }))
}

// attend is self-attention of layer i: q, k and v [rows, H, D] → [rows, H, D].
func (r *resident) attend(i int, q, k, v torchx.Tensor, scale float64) torchx.Tensor {
	flat := func(x torchx.Tensor) torchx.Tensor { return torchx.Reshape(x, -1, r.dim) }
	torchx.WriteRowsAt(r.k[i], r.rows, flat(k))
	torchx.WriteRowsAt(r.v[i], r.rows, flat(v))
	seen := func(x torchx.Tensor) torchx.Tensor { return torchx.Reshape(x, -1, r.max, r.dim) } // [rows·H, max, D]
	z := torchx.MatMul(torchx.Reshape(q, -1, 1, r.dim), torchx.Transpose(seen(r.k[i]), 1, 2)).To(torchx.Float32)
	z = torchx.Add(torchx.Scale(torchx.Reshape(z, -1, r.heads, r.max), scale), torchx.IndexSelect(r.scores, 0, r.place))
	weights := torchx.Reshape(torchx.Softmax(z, 2).To(r.m.DType), -1, 1, r.max)
	return torchx.Reshape(torchx.MatMul(weights, seen(r.v[i])), -1, r.heads, r.dim)
}

func (r *resident) First() torchx.Tensor {
	return r.Next(torchx.FullLike(r.rows, float64(r.m.generation.Start), torchx.Int64, r.rows.Numel()/r.heads))
}

func (r *resident) Next(ids torchx.Tensor) torchx.Tensor {
	r.ids = ids
	hidden := r.m.run(&rows{side: "decoder", step: r}, torchx.Tensor{}, &lora.Pass{})
	logits := r.m.Logits(r.m.scaled(hidden))
	torchx.Advance(r.rows, 1)
	torchx.Advance(r.place, 1)
	return logits
}

func (r *resident) Take(rows []int) {
	index := list.Map(rows, func(at int) int64 { return int64(at) })
	n := r.source.OwnLen.Numel()
	for i := range r.k {
		r.m.Take(&r.k[i], n, index)
		r.m.Take(&r.v[i], n, index)
	}
	r.m.Take(&r.source.OwnLen, n, index)
	r.m.Take(&r.source.Own, n+1, append(index, 0))
	r.rows.Free()
	r.rows = r.starts(len(rows), int(torchx.Data[int64](r.place)[0])) // sync
}
