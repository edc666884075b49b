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

// bias is what T5 adds to the scores of self-attention.
type bias struct {
	scores torchx.Tensor // [H, distances] float32
	zero   int           // where distance 0 is; keys that follow their query come after it
}

// newBias returns the bias of in's sequences. It has gradient where the table is trained.
func (t *t5) newBias(in *rows) *bias {
	if in.cache != nil {
		return in.cache.bias
	}
	width := 0
	for _, s := range in.self {
		width = max(width, s.QLen)
	}
	return t.distanceBias(in.side, width)
}

// distanceBias returns the bias of sequences of at most that many tokens. The decoder sees no keys that follow.
func (t *t5) distanceBias(side string, width int) *bias {
	c, last := t.m.cfg, 0
	if side == "encoder" {
		last = width - 1
	}
	var buckets []int64
	for d := 1 - width; d <= last; d++ {
		buckets = append(buckets, int64(bucket(d, side == "encoder", c.Buckets, c.MaxDistance)))
	}
	found := torchx.Embedding(t.stacks[side].bias, t.m.Int64s(buckets)).To(torchx.Float32) // [distances, H]
	return &bias{torchx.Contiguous(torchx.Transpose(found, 0, 1)), width - 1}
}
