package grpo

import (
	"math"

	"fulcrum/internal/torchx"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// The loss of GRPO over candidates i with tokens t, ratio ρ = π/π_old and advantage A:
//
//	Σ_it weight_it · [-min(ρ_it A_i, clip(ρ_it, 1-low, 1+high) A_i) + β·KL_it] / divisor
//
//	                ratio ρ_it           weight_it   divisor
//	grpo, ppo_clip  of the token         1/|o_i|     candidates
//	gspo            exp(mean_t log ρ)    1/|o_i|     candidates
//	bnpo, dapo      of the token         1           tokens
//	dr_grpo         of the token         1           candidates · longest length allowed
//	sequence        Π_t ρ_it             1           candidates, no sum over t
//
// Sources: DeepSeekMath (arXiv:2402.03300) eq. 3, GSPO (arXiv:2507.18071) eq. 5, DAPO (arXiv:2503.14476)
// eq. 8, Dr. GRPO (arXiv:2503.20783) §3.2. Candidates and tokens are those of the whole optimizer batch,
// whatever micro_batch says, so that bnpo and dapo are the same here: TRL's bnpo divides every micro-batch
// by its own tokens, and its loss depends on how much memory there is.

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

// shape is that of perRatio.
func (g *Phase) shape(b *selector.Batch) []int {
	if g.opt.Ratio == "token" {
		return []int{b.B(), b.G, b.T}
	}
	return []int{b.B(), b.G}
}

// advantages returns the advantages of a part of the batch in hand: [B, G], or [B, G, 1] with ratio=token.
func (g *Phase) advantages(like torchx.Tensor, b *selector.Batch, from int) torchx.Tensor {
	shape := g.shape(b)
	if len(shape) == 3 {
		shape[2] = 1
	}
	return objective.OnDevice(like, g.hand.adv[from*b.G:][:len(b.Valid)], shape...)
}

// weights returns what the terms of a part's loss are multiplied by, shaped like logp and 0 where nothing
// counts, and the divisor of the whole batch (the table above).
func (g *Phase) weights(logp torchx.Tensor, b *selector.Batch) (weight torchx.Tensor, divisor float64) {
	candidates := float64(max(g.hand.candidates, 1))
	if g.opt.Ratio != "token" {
		return objective.OnDevice(logp, objective.Indicator(b.Valid), b.B(), b.G), candidates
	}
	switch g.opt.Loss {
	case "bnpo", "dapo":
		return objective.Mask(logp, b), float64(max(g.hand.tokens, 1))
	case "dr_grpo":
		longest := g.env.Data.Shots
		if longest == 0 {
			longest = b.T
		}
		return objective.Mask(logp, b), candidates * float64(longest)
	}
	perToken := make([]float64, len(b.Mask))
	for at, inverse := range inverseLengths(b) {
		for t := at * b.T; t < (at+1)*b.T; t++ {
			perToken[t] = inverse * float64(b.Mask[t])
		}
	}
	return objective.OnDevice(logp, perToken, g.shape(b)...), candidates
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

// logRatio returns log ρ, shaped like logp; gspo's is the mean over a candidate's steps, [B, G] or [B, G, 1].
func (g *Phase) logRatio(logp, old torchx.Tensor, b *selector.Batch) torchx.Tensor {
	d := torchx.Sub(logp, old) // 0 where masked
	if g.opt.Loss != "gspo" {
		return d
	}
	shape := g.shape(b)
	if len(shape) == 3 {
		d, shape[2] = torchx.SumKeep(d, 2), 1
	}
	return torchx.Mul(d, objective.OnDevice(logp, inverseLengths(b), shape...))
}

// surrogate is PPO's clipped objective to be minimised (Schulman et al. 2017, eq. 7):
// -Σ weight·min(ρ·A, clip(ρ, 1-low, 1+high)·A) / divisor.
func surrogate(ratio, adv, weight torchx.Tensor, low, high, divisor float64) torchx.Tensor {
	clipped := torchx.Clamp(ratio, 1-low, 1+high)
	gain := torchx.Minimum(torchx.Mul(ratio, adv), torchx.Mul(clipped, adv))
	return torchx.Scale(torchx.Sum(torchx.Mul(gain, weight)), -1/divisor)
}

// kl is the penalty, like logp: nats per sequence, or per step with ratio=token; with gradient.
func (g *Phase) kl(out selector.Output, ref view, logp torchx.Tensor, b *selector.Batch) torchx.Tensor {
	switch {
	case g.opt.KL.Estimator != "exact":
		return sampledKL(g.opt.KL.Estimator, torchx.Sub(logp, ref.logp), g.opt.MaxLogRatio)
	case g.opt.Ratio == "token":
		return out.KL
	}
	return objective.MaskedSum(out.KL, b)
}

// sampledKL estimates KL(π ‖ ref) from one log-ratio a candidate or token, r = log π - log ref (Schulman
// 2020, "Approximating KL divergence"): k1 = r, k2 = r²/2, k3 = e^-r - 1 + r. k3_reversed is the Python
// reference's e^r - 1 - r, which estimates KL(ref ‖ π) from samples of ref. limit bounds what is
// exponentiated. As a penalty, only k2's gradient is that of the KL on samples of π; k1's is 0 in
// expectation and k3's that of the reversed KL.
func sampledKL(estimator string, logRatio torchx.Tensor, limit float64) torchx.Tensor {
	switch estimator {
	case "k1":
		return logRatio
	case "k2":
		return torchx.Scale(torchx.Square(logRatio), 0.5)
	case "k3_reversed":
		r := clampTo(logRatio, limit)
		return torchx.Sub(torchx.AddScalar(torchx.Exp(r), -1), r)
	default: // k3
		r := clampTo(logRatio, limit)
		return torchx.AddScalar(torchx.Add(torchx.Exp(torchx.Neg(r)), r), -1)
	}
}

// entropyBonus is the part's share of the mean entropy of the scored steps, with gradient.
func (g *Phase) entropyBonus(out selector.Output, like torchx.Tensor, b *selector.Batch) torchx.Tensor {
	mask, steps := objective.Mask(like, b), float64(g.hand.tokens)
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
