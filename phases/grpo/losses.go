package grpo

import (
	"math"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// Losses lists the choices of grpo.loss.
func Losses() []Loss {
	return []Loss{
		// the mean over a candidate's tokens, then over candidates: DeepSeekMath (arXiv:2402.03300) eq. 3
		{Name: "grpo", Kernel: true, Divisor: perCandidate, Over: "candidates"},
		// the mean over all tokens of the batch. TRL's divides every micro-batch by its own tokens, so that its loss
		// depends on micro_batch; ours does not, and equals dapo
		{Name: "bnpo", EveryToken: true, Divisor: perToken, Over: "tokens"},
		// the mean over all tokens of the batch: DAPO (arXiv:2503.14476) eq. 8
		{Name: "dapo", EveryToken: true, Divisor: perToken, Over: "tokens"},
		// the sum over tokens by candidates and the longest length allowed: Dr. GRPO (arXiv:2503.20783) §3.2
		{Name: "dr_grpo", EveryToken: true, Over: "longest",
			Divisor: func(n Counts) float64 { return perCandidate(n) * float64(n.Longest) }},
		// grpo with one length-normalised ratio a candidate: GSPO (arXiv:2507.18071) eq. 5
		{Name: "gspo", Divisor: perCandidate, MeanRatio: true, Over: "candidates"},
		// the surrogate of grpo alone
		{Name: "ppo_clip", Kernel: true, Divisor: perCandidate, NoKL: true, Over: "candidates"},
	}
}

// Loss averages the terms of GRPO in one way, over candidates i with tokens t, ratio ρ = π/π_old and advantage A:
//
//	Σ_it weight_it · [-min(ρ_it A_i, clip(ρ_it, 1-low, 1+high) A_i) + β·KL_it] / divisor
//
// With ratio=sequence a candidate has one term, whose ratio is Π_t ρ_it and whose weight is 1.
type Loss struct {
	Name string
	// EveryToken gives every token the weight 1; otherwise the tokens of a candidate share the weight 1. It needs ratio=token.
	EveryToken bool
	// Divisor returns the divisor of the sum. The counts are those of the whole optimizer batch, whatever the
	// micro_batch.
	Divisor func(Counts) float64
	// Over says in a word what Divisor counts, for the preflight, which computes it again: candidates, tokens, or longest (candidates
	// times the longest length).
	Over string
	// MeanRatio replaces the ratios of a candidate by one, exp(mean_t log ρ_it).
	MeanRatio bool
	// NoKL leaves the KL term out of the loss. β is still adapted and reported.
	NoKL bool
	// Kernel lets one CUDA kernel (torchx.Surrogate) compute the loss of sequences: it has the formula above, with one ratio a candidate.
	Kernel bool
}

func (l Loss) named() string { return l.Name }

// Counts describes an optimizer batch.
type Counts struct {
	Candidates int // including the truncated ones that mask_truncated leaves out
	Tokens     int // scored
	Longest    int // tokens that a candidate may have
}

func perCandidate(n Counts) float64 { return float64(max(n.Candidates, 1)) }
func perToken(n Counts) float64     { return float64(max(n.Tokens, 1)) }

// Estimators lists the choices of grpo.kl.estimator.
func Estimators() []Estimator {
	return []Estimator{
		{Name: "exact"},
		// r
		{Name: "k1", Kernel: torchx.K1, Signed: true, Sampled: func(r torchx.Tensor, _ float64) torchx.Tensor { return r }},
		// r²/2
		{Name: "k2", Kernel: torchx.K2, Sampled: func(r torchx.Tensor, _ float64) torchx.Tensor {
			return torchx.Scale(torchx.Square(r), 0.5)
		}},
		// e^-r - 1 + r
		{Name: "k3", Kernel: torchx.K3, Sampled: func(r torchx.Tensor, limit float64) torchx.Tensor {
			r = clampTo(r, limit)
			return torchx.AddScalar(torchx.Add(torchx.Exp(torchx.Neg(r)), r), -1)
		}},
		// the Python reference's e^r - 1 - r, which estimates KL(ref ‖ π) from samples of ref
		{Name: "k3_reversed", Kernel: torchx.K3Reversed, Sampled: func(r torchx.Tensor, limit float64) torchx.Tensor {
			r = clampTo(r, limit)
			return torchx.Sub(torchx.AddScalar(torchx.Exp(r), -1), r)
		}},
	}
}

// Estimator is one way to compute KL(π ‖ ref), the penalty, with gradient. The sampled ones take one log-ratio a candidate
// or token, r = log π - log ref (Schulman 2020, "Approximating KL divergence"). As a penalty, only k2's gradient is that of
// the KL on samples of π; k1's is 0 in expectation and k3's that of the reversed KL.
type Estimator struct {
	Name string
	// Sampled estimates the KL from log-ratios, which limit bounds before they are exponentiated. nil: exact, summed over
	// the distributions of every step.
	Sampled func(logRatio torchx.Tensor, limit float64) torchx.Tensor
	// Signed says that an estimate may be below 0.
	Signed bool
	// Kernel names the estimate for the kernel of the whole loss; Given: the kernel does not compute it.
	Kernel torchx.Estimate
}

func (e Estimator) named() string { return e.Name }

// clampTo cuts x to ±limit; an infinite limit leaves x unchanged, NaN included.
func clampTo(x torchx.Tensor, limit float64) torchx.Tensor {
	if math.IsInf(limit, 1) {
		return x
	}
	return torchx.Clamp(x, -limit, limit)
}

// sides are the widths of the clip range below and above 1.
func (o ClipOptions) sides() (low, high float64) {
	return o.Epsilon, option.Or(o.EpsilonHigh, o.Epsilon)
}

// perRatio returns one log-probability for each ratio: [B, G, T] → [B, G]; with ratio=token unchanged.
func (g *Phase) perRatio(logp torchx.Tensor) torchx.Tensor {
	if g.opt.Ratio == "token" {
		return logp
	}
	return objective.Sequence(logp)
}

// width returns the number of log-probabilities of a candidate.
func (g *Phase) width(b *selector.Batch) int {
	if g.opt.Ratio == "token" {
		return b.T
	}
	return 1
}

// shape returns the shape of perRatio's result; last is the length of the third axis with ratio=token.
func (g *Phase) shape(b *selector.Batch, last int) []int {
	if g.opt.Ratio == "token" {
		return []int{b.B(), b.G, last}
	}
	return []int{b.B(), b.G}
}

// weights returns the factors of the terms of a part's loss, shaped like logp; 0 = not in the loss.
func (g *Phase) weights(b *selector.Batch) []float64 {
	if g.opt.Ratio != "token" {
		return list.Map(b.Valid, objective.OneIf)
	}
	weights := make([]float64, len(b.Mask))
	for at, share := range inverseLengths(b) {
		if g.chosen.loss.EveryToken {
			share = 1
		}
		for t := at * b.T; t < (at+1)*b.T; t++ {
			weights[t] = share * float64(b.Mask[t])
		}
	}
	return weights
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

// entropyBonus is the part's share of the mean entropy of the scored steps, with gradient.
func (g *Phase) entropyBonus(out selector.Output, in *inputs) torchx.Tensor {
	if out.Dist.Nil() {
		return in.perStep.Times(torchx.Sum(torchx.Mul(out.Entropy, in.mask)))
	}
	return entropy(out.Dist, in.mask, in.perStep)
}

// entropy is the mean over scored steps, of which perStep is one's share, of -Σ_a π(a) log π(a), in nats.
func entropy(dist, mask torchx.Tensor, perStep *torchx.Factor) torchx.Tensor {
	nats := torchx.Neg(torchx.Sum(torchx.Mul(torchx.Exp(dist), torchx.ClampMin(dist, -1e8)), 3))
	return perStep.Times(torchx.Sum(torchx.Mul(nats, mask)))
}
