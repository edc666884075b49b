package grpo

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
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

// staged is what a part's loss reads beside the policy's output, on the device once the step's upload was sent.
type staged struct {
	policy    func(selector.ForwardOptions) selector.Output
	reference func() view
	old       func(now, ref view) view
	fresh     bool // the old policy has the very weights that the numerator has now

	adv     torchx.Tensor // [B, G], or [B, G, 1] with ratio=token
	weight  torchx.Tensor // like logp; 0 where nothing counts
	inverse torchx.Tensor // like adv: 1/|o_i|, with a mean ratio
	mask    torchx.Tensor // [B, G, T]; no tensor where every step counts and nobody asks

	share, minusShare *torchx.Factor // 1/divisor of the whole batch: the loss is Σ weight·term / divisor over all parts
	perCandidate      *torchx.Factor // 1/candidates
	perStep           *torchx.Factor // 1/scored steps
	beta              *torchx.Factor // of the KL; nil: it is not in the loss
}

// stage adds what a part reads to the step's upload.
func (g *Phase) stage(from int, b *selector.Batch, temperature float64, w *phases.Work) *staged {
	up, on := &w.Upload, g.env.Policy.Params().Flat()
	in, eager := &staged{}, ""
	in.policy, eager = selector.Stage(g.env.Policy, b, up, selector.ForwardOptions{})
	w.Refuse(eager)
	in.reference = g.referenceView(b, from, temperature, w)
	in.old, in.fresh = g.oldLogProbs(b, from, temperature, w)
	g.putAdvantages(&in.adv, b, from, up)
	divisor := g.putWeights(&in.weight, b, up)
	in.share, in.minusShare = up.Factor(1/divisor, on), up.Factor(-1/divisor, on)
	if g.chosen.loss.MeanRatio {
		torchx.Put(up, &in.inverse, objective.Rounded(inverseLengths(b)), g.shape(b, 1)...)
	}
	if g.opt.Ratio == "token" || g.opt.EntropyWeight > 0 || slices.Contains(b.Mask, 0) {
		torchx.Put(up, &in.mask, b.Mask, b.B(), b.G, b.T)
	}
	in.perCandidate = up.Factor(1/float64(max(g.rollout.counts.Candidates, 1)), on)
	in.perStep = up.Factor(1/max(float64(g.rollout.counts.Tokens), 1), on)
	if weight := g.klWeight(); weight != 0 {
		in.beta = up.Factor(weight, on)
	}
	w.Key += fmt.Sprint(in.fresh, g.rollout.old != nil, g.rollout.ref != nil, in.beta != nil)
	return in
}

// putAdvantages stages the advantages of a part: [B, G], or [B, G, 1] with ratio=token.
func (g *Phase) putAdvantages(to *torchx.Tensor, b *selector.Batch, from int, up *torchx.Upload) {
	adv := objective.Rounded(g.rollout.adv[from*b.G:][:len(b.Valid)])
	torchx.Put(up, to, adv, g.shape(b, 1)...)
}

// putWeights stages what the terms of a part's loss are multiplied by, shaped like logp and 0 where nothing
// counts, and returns the divisor of the whole batch.
func (g *Phase) putWeights(to *torchx.Tensor, b *selector.Batch, up *torchx.Upload) (divisor float64) {
	divisor = g.chosen.loss.Divisor(g.rollout.counts)
	weights := make([]float64, len(b.Valid)*g.width(b))
	switch {
	case g.opt.Ratio != "token":
		weights = objective.Indicator(b.Valid)
	case g.chosen.loss.EveryToken:
		for at, counts := range b.Mask {
			weights[at] = float64(counts)
		}
	default:
		for at, inverse := range inverseLengths(b) {
			for t := at * b.T; t < (at+1)*b.T; t++ {
				weights[t] = inverse * float64(b.Mask[t])
			}
		}
	}
	torchx.Put(up, to, objective.Rounded(weights), g.shape(b, b.T)...)
	return divisor
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

// oneKernel reports whether kernelLoss can compute the loss of a part.
func (g *Phase) oneKernel(out selector.Output, in *staged) bool {
	known := g.chosen.kl.Sampled == nil || g.chosen.kl.Kernel != torchx.Given
	sequences := g.opt.Ratio != "token" && !g.chosen.loss.MeanRatio
	return known && sequences && !in.fresh && g.opt.EntropyWeight == 0 && objective.OneKernel(out.LogP)
}

// kernelLoss is the loss of a part, and what is read of it, by one CUDA kernel.
func (g *Phase) kernelLoss(out selector.Output, ref view, in *staged) (torchx.Tensor, found) {
	old := in.old(view{}, ref)
	low, high := g.opt.Clip.sides()
	s := torchx.Surrogate{Old: old.logp, Adv: in.adv, Weight: in.weight, Ref: ref.logp, Estimate: g.chosen.kl.Kernel,
		Share: in.share, MinusShare: in.minusShare, Beta: in.beta, Limit: g.opt.MaxLogRatio, Low: low, High: high}
	if s.Estimate == torchx.Given {
		s.Penalty = g.kl(out, ref, torchx.Tensor{}, in)
	}
	l := s.Loss(out.LogP)
	return l.Loss, found{ppo: l.PPO, kl: l.KL, klTerms: l.Penalties, logRatio: l.LogRatios, logp: l.Sequences, old: old.logp, ref: ref.logp,
		entropy: out.Entropy}
}

// logRatio returns log ρ, shaped like logp; with a mean ratio [B, G] or [B, G, 1].
func (g *Phase) logRatio(logp, old torchx.Tensor, in *staged) torchx.Tensor {
	d := torchx.Sub(logp, old) // 0 where masked
	if !g.chosen.loss.MeanRatio {
		return d
	}
	if g.opt.Ratio == "token" {
		d = torchx.SumKeep(d, 2)
	}
	return torchx.Mul(d, in.inverse)
}

// surrogate is PPO's clipped objective to be minimised (Schulman et al. 2017, eq. 7):
// -Σ weight·min(ρ·A, clip(ρ, 1-low, 1+high)·A) / divisor; minusShare is -1/divisor.
func surrogate(ratio, adv, weight torchx.Tensor, low, high float64, minusShare *torchx.Factor) torchx.Tensor {
	clipped := torchx.Clamp(ratio, 1-low, 1+high)
	gain := torchx.Minimum(torchx.Mul(ratio, adv), torchx.Mul(clipped, adv))
	return minusShare.Times(torchx.Sum(torchx.Mul(gain, weight)))
}

// entropyBonus is the part's share of the mean entropy of the scored steps, with gradient.
func (g *Phase) entropyBonus(out selector.Output, in *staged) torchx.Tensor {
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
