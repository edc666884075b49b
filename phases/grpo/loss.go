package grpo

import (
	"math"

	"fulcrum/internal/torchx"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// perRatio returns one log-probability a ratio: [B, G, T] → [B, G], or as it is with ratio=token.
func (g *Phase) perRatio(logp torchx.Tensor) torchx.Tensor {
	if g.opt.Ratio == "token" {
		return logp
	}
	return objective.Sequence(logp)
}

// width is how many log-probabilities each candidate has.
func (g *Phase) width(b *selector.Batch) int {
	if g.opt.Ratio == "token" {
		return b.T
	}
	return 1
}

// shape is that of perRatio; last is the length of the third axis with ratio=token.
func (g *Phase) shape(b *selector.Batch, last int) []int {
	if g.opt.Ratio == "token" {
		return []int{b.B(), b.G, last}
	}
	return []int{b.B(), b.G}
}

// advantages returns the advantages of a part of the rollout: [B, G], or [B, G, 1] with ratio=token.
func (g *Phase) advantages(like torchx.Tensor, b *selector.Batch, from int) torchx.Tensor {
	return objective.OnDevice(like, g.rollout.adv[from*b.G:][:len(b.Valid)], g.shape(b, 1)...)
}

// weights returns what the terms of a part's loss are multiplied by, shaped like logp and 0 where nothing
// counts, and the divisor of the whole batch.
func (g *Phase) weights(logp torchx.Tensor, b *selector.Batch) (weight torchx.Tensor, divisor float64) {
	divisor = g.chosen.loss.Divisor(g.rollout.counts)
	switch {
	case g.opt.Ratio != "token":
		return objective.OnDevice(logp, objective.Indicator(b.Valid), b.B(), b.G), divisor
	case g.chosen.loss.EveryToken:
		return objective.Mask(logp, b), divisor
	}
	perToken := make([]float64, len(b.Mask))
	for at, inverse := range inverseLengths(b) {
		for t := at * b.T; t < (at+1)*b.T; t++ {
			perToken[t] = inverse * float64(b.Mask[t])
		}
	}
	return objective.OnDevice(logp, perToken, g.shape(b, b.T)...), divisor
}

// inverseLengths returns 1/|o_i| of each candidate [B*G]; 0 without scored steps.
func inverseLengths(b *selector.Batch) []float64 {
	out := make([]float64, len(b.Valid))
	for at := range out {
		if n := len(b.Scored(at/b.G, at%b.G)); n > 0 {
			out[at] = 1 / float64(n)
		}
	}
	return out
}

// logRatio returns log ρ, shaped like logp; with a mean ratio [B, G] or [B, G, 1].
func (g *Phase) logRatio(logp, old torchx.Tensor, b *selector.Batch) torchx.Tensor {
	d := torchx.Sub(logp, old) // 0 where masked
	if !g.chosen.loss.MeanRatio {
		return d
	}
	if g.opt.Ratio == "token" {
		d = torchx.SumKeep(d, 2)
	}
	return torchx.Mul(d, objective.OnDevice(logp, inverseLengths(b), g.shape(b, 1)...))
}

// surrogate is PPO's clipped objective to be minimised (Schulman et al. 2017, eq. 7):
// -Σ weight·min(ρ·A, clip(ρ, 1-low, 1+high)·A) / divisor.
func surrogate(ratio, adv, weight torchx.Tensor, low, high, divisor float64) torchx.Tensor {
	clipped := torchx.Clamp(ratio, 1-low, 1+high)
	gain := torchx.Minimum(torchx.Mul(ratio, adv), torchx.Mul(clipped, adv))
	return torchx.Scale(torchx.Sum(torchx.Mul(gain, weight)), -1/divisor)
}

// entropyBonus is the part's share of the mean entropy of the scored steps, with gradient.
func (g *Phase) entropyBonus(out selector.Output, like torchx.Tensor, b *selector.Batch) torchx.Tensor {
	mask, steps := objective.Mask(like, b), float64(g.rollout.counts.Tokens)
	if out.Dist.Nil() {
		return torchx.Scale(torchx.Sum(torchx.Mul(out.Entropy, mask)), 1/max(steps, 1))
	}
	return entropy(out.Dist, mask, steps)
}

// entropy is the mean over scored steps of -Σ_a π(a) log π(a), in nats.
func entropy(dist, mask torchx.Tensor, steps float64) torchx.Tensor {
	perStep := torchx.Neg(torchx.Sum(torchx.Mul(torchx.Exp(dist), torchx.ClampMin(dist, -1e8)), 3))
	return torchx.Scale(torchx.Sum(torchx.Mul(perStep, mask)), 1/max(steps, 1))
}

// clampTo cuts x to ±limit; an infinite limit cuts nothing, NaN included.
func clampTo(x torchx.Tensor, limit float64) torchx.Tensor {
	if math.IsInf(limit, 1) {
		return x
	}
	return torchx.Clamp(x, -limit, limit)
}

// sides are the widths of the clip range below and above 1.
func (o ClipOptions) sides() (low, high float64) {
	if o.EpsilonHigh != nil {
		return o.Epsilon, *o.EpsilonHigh
	}
	return o.Epsilon, o.Epsilon
}
