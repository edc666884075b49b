package seq2seq

import (
	"math"

	"fulcrum/internal/torchx"
)

// bucket returns the row of T5's table for a relative position, key minus query: in the encoder half of the buckets
// are for keys that follow. Half of a direction's buckets are single distances, the others grow as powers (spec §5).
// The logarithm is float32's, as in Hugging Face.
func bucket(relative int, bidirectional bool, buckets, maxDistance int) int {
	start, n := 0, max(-relative, 0)
	if bidirectional {
		buckets /= 2
		if relative > 0 {
			start, n = buckets, relative
		}
	}
	exact := buckets / 2
	if n < exact {
		return start + n
	}
	log := float32(math.Log(float64(float32(n) / float32(exact))))
	far := exact + int(log/float32(math.Log(float64(maxDistance)/float64(exact)))*float32(buckets-exact))
	return start + min(buckets-1, far)
}

// bias is what T5 adds to the scores of self-attention, and how packed rows become the padded sequences that it is
// added to. A kernel that takes the bias of a head as one number a distance would need neither.
type bias struct {
	scores torchx.Tensor // [H, rows, keys] or [n, H, rows, keys]: the bias, -inf for keys that a row does not see
	n      int           // sequences
	pad    torchx.Tensor // [n·keys] int64: the row at each padded place; none where all sequences are equally long
	back   torchx.Tensor // [N] int64: the padded place of each row
}

// newBias returns the bias of in's sequences. It has gradient where the table is trained.
func (t *t5) newBias(in *rows) *bias {
	if in.cache != nil {
		return &bias{scores: in.cache.biasAt(), n: len(in.ids)}
	}
	b := &bias{n: len(in.self)}
	width, equal := 0, true
	for _, s := range in.self {
		width, equal = max(width, s.QLen), equal && s.QLen == in.self[0].QLen
	}
	b.scores = t.positionBias(in.side, width)
	if in.side == "decoder" {
		hidden := make([]float32, width*width)
		for i := range width {
			for j := i + 1; j < width; j++ {
				hidden[i*width+j] = float32(math.Inf(-1))
			}
		}
		b.scores = torchx.Add(b.scores, t.m.onDevice(torchx.From(hidden, width, width)).To(t.m.dtype))
	}
	if equal {
		return b
	}
	pad, back := make([]int64, b.n*width), make([]int64, 0, len(in.ids)) // what pads point to is never seen: they follow in the decoder, and are masked in the encoder
	masked := make([]float32, b.n*width)
	for i, s := range in.self {
		for k := range width {
			if k < s.QLen {
				pad[i*width+k] = int64(s.Q + k)
				back = append(back, int64(i*width+k))
			} else {
				masked[i*width+k] = float32(math.Inf(-1))
			}
		}
	}
	b.pad, b.back = t.m.int64s(pad), t.m.int64s(back)
	if in.side == "encoder" {
		b.scores = torchx.Add(b.scores, t.m.onDevice(torchx.From(masked, b.n, 1, 1, width)).To(t.m.dtype))
	}
	return b
}

// positionBias returns the bias of a sequence of that many tokens [H, width, width].
func (t *t5) positionBias(side string, width int) torchx.Tensor {
	c := t.m.cfg
	of := make([]int64, 2*width-1) // the bucket of each distance
	for d := range of {
		of[d] = int64(bucket(d-width+1, side == "encoder", c.Buckets, c.MaxDistance))
	}
	index := make([]int64, width*width) // [key, query], so that one transposition puts the heads first
	for j := range width {
		for i := range width {
			index[j*width+i] = of[j-i+width-1]
		}
	}
	found := torchx.Embedding(t.stacks[side].bias, t.m.int64s(index)).To(t.m.dtype) // [width·width, H]
	return torchx.Contiguous(torchx.Transpose(torchx.Reshape(found, width, width, c.stack(side).Heads), 0, 2))
}

// attend is attention with the bias: q [N, H, D] → [N, H, D]. k and v are [N, H, D], or the rows of a cache, as many
// for each of the n sequences, of which the first ones are seen.
func (b *bias) attend(q, k, v torchx.Tensor, scale float64) torchx.Tensor {
	shape := q.Shape()
	heads, dim := shape[1], shape[2]
	bySequence := func(x torchx.Tensor) torchx.Tensor { // [n, H, rows, D]
		if !b.pad.Nil() {
			x = torchx.Embedding(torchx.Reshape(x, -1, heads*dim), b.pad)
		}
		return torchx.Transpose(torchx.Reshape(x, b.n, -1, heads, dim), 1, 2)
	}
	bias := b.scores.Shape()
	keys := bias[len(bias)-1]
	seen := func(x torchx.Tensor) torchx.Tensor { return torchx.Narrow(bySequence(x), 2, 0, keys) }
	z := torchx.MatMul(bySequence(q), torchx.Transpose(seen(k), 2, 3))
	if scale != 1 {
		z = torchx.Scale(z, scale)
	}
	p := torchx.Softmax(torchx.Add(z, b.scores).To(torchx.Float32), 3).To(q.DType())
	out := torchx.Reshape(torchx.Transpose(torchx.MatMul(p, seen(v)), 1, 2), -1, heads*dim)
	if !b.back.Nil() {
		out = torchx.Embedding(out, b.back)
	}
	return torchx.Reshape(out, -1, heads, dim)
}

// distanceBias returns the decoder's bias of the distances width-1 … 0 [H, width].
func (t *t5) distanceBias(width int) torchx.Tensor {
	c := t.m.cfg
	index := make([]int64, width)
	for i := range index {
		index[i] = int64(bucket(i-width+1, false, c.Buckets, c.MaxDistance))
	}
	return torchx.Contiguous(torchx.Transpose(torchx.Embedding(t.stacks["decoder"].bias, t.m.int64s(index)).To(t.m.dtype), 0, 1))
}
