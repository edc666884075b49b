// Package objective computes the parts of losses and metrics: sums, masks and cross entropies over a batch of groups.
package objective

import (
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// Sequence sums log-probabilities over the scored steps: [B, G, T] → [B, G].
func Sequence(logp torchx.Tensor) torchx.Tensor { return torchx.Sum(logp, 2) }

// CrossEntropy is Σ_t -log π(a_t) of each candidate [B, G]. With smoothing s the target of a step is
// (1-s) on the action and s/A on each of the step's A possible actions.
func CrossEntropy(out selector.Output, b *selector.Batch, smoothing float64) torchx.Tensor {
	ce := torchx.Neg(Sequence(out.LogP)) // [B, G]
	if smoothing == 0 {
		return ce
	}
	possible := torchx.Compare(out.Dist, "gt", -1e8).To(torchx.Float32)                           // [B, G, T, A] 1 = may be chosen
	uniform := torchx.Div(torchx.Sum(torchx.Mul(out.Dist, possible), 3), torchx.Sum(possible, 3)) // [B, G, T] mean log π
	return torchx.Add(torchx.Scale(ce, 1-smoothing), torchx.Scale(MaskedSum(uniform, b), -smoothing))
}

// OneKernel reports whether a loss of log-probabilities [B, G, T] is one CUDA kernel: of few numbers, since one block computes it.
func OneKernel(logp torchx.Tensor) bool {
	const most = 1 << 16
	return torchx.PoolRuns(logp) && logp.Numel() <= most
}

// MaskedSum adds the values of the scored steps: [B, G, T] → [B, G].
func MaskedSum(perStep torchx.Tensor, b *selector.Batch) torchx.Tensor {
	if slices.Contains(b.Mask, 0) {
		perStep = torchx.Mul(perStep, Mask(perStep, b))
	}
	return torchx.Sum(perStep, 2)
}

func Mask(like torchx.Tensor, b *selector.Batch) torchx.Tensor {
	return torchx.ToLike(torchx.From(b.Mask, b.B(), b.G, b.T), like)
}
