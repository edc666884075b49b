package grpo

import (
	"fmt"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// inputs are a part of the rollout and the tensors of its loss, which are on the device once the step's upload is sent.
type inputs struct {
	part        rollout
	temperature float64 // of every log-probability

	policy    func(selector.ForwardOptions) selector.Output // its forward pass, with gradient, dropout off
	reference *frozenInput                                  // nil: the KL is not measured
	old       *frozenInput                                  // nil: the policy itself, else the reference

	adv     torchx.Tensor // [B, G], or [B, G, 1] with ratio=token
	weight  torchx.Tensor // like logp; 0 = not in the loss
	inverse torchx.Tensor // like adv: 1/|o_i|, with a mean ratio
	mask    torchx.Tensor // [B, G, T], 1 = counts; undefined where every step counts
	corrected

	share, minusShare *torchx.Factor // 1/divisor of the whole batch: the loss is Σ weight·term / divisor over all parts
	perCandidate      *torchx.Factor // 1/candidates
	perStep           *torchx.Factor // 1/scored steps
	beta              *torchx.Factor // of the KL; nil: the loss has no KL
}

// Size implements phases.Algorithm.
func (g *Phase) Size(r *rollout) int { return r.batch.B() }

// Inputs implements phases.Algorithm. A part without candidates is left out; the divisors are those of the whole step. Without any part the
// gradient is 0.
func (g *Phase) Inputs(r *rollout, of phases.Span, in *phases.Inputs) (*inputs, bool) {
	if g.opt.Temperature.Enabled {
		in.Refuse(g.name + ".temperature moves")
	}
	part := r.part(of)
	if part.batch.NumValid() == 0 {
		return nil, false
	}
	return g.inputs(part, in), true
}

// inputs puts a part's numbers into the step's upload. Log-probabilities of samples are taken at the temperature of the draw: only then is
// the ratio an importance weight. The temperature of recorded groups is not known.
func (g *Phase) inputs(part rollout, up *phases.Inputs) *inputs {
	on, b := g.env.Policy.Params().Flat(), part.batch
	in := &inputs{part: part, temperature: part.temperature}
	if g.chosen.rollout.Samples {
		in.temperature *= g.opt.SampleTemp
	}
	in.policy = up.Forward(g.env.Policy, b, selector.ForwardOptions{})
	if g.measuresKL(part.step) && part.refKnown {
		in.reference = g.known(part.ref, b, up)
	} else if g.measuresKL(part.step) {
		how := selector.ForwardOptions{Temperature: in.temperature, Dist: g.chosen.kl.Sampled == nil}
		in.reference = g.input(g.reference, &in.part, how, up)
	}
	in.old = g.oldInput(in, up)
	g.correctionInput(in, up)
	adv := objective.Rounded(part.adv)
	torchx.Put(&up.Upload, &in.adv, adv, g.shape(b, 1)...)
	weights := g.weights(b)
	torchx.Put(&up.Upload, &in.weight, objective.Rounded(weights), g.shape(b, b.T)...)
	divisor := g.chosen.loss.Divisor(part.counts) // of the whole batch
	in.share, in.minusShare = up.Upload.Factor(1/divisor, on), up.Upload.Factor(-1/divisor, on)
	if g.chosen.loss.MeanRatio {
		torchx.Put(&up.Upload, &in.inverse, objective.Rounded(inverseLengths(b)), g.shape(b, 1)...)
	}
	if g.opt.Ratio == "token" || g.opt.EntropyWeight > 0 || slices.Contains(b.Mask, 0) {
		torchx.Put(&up.Upload, &in.mask, b.Mask, b.B(), b.G, b.T)
	}
	in.perCandidate = up.Upload.Factor(1/perCandidate(part.counts), on)
	in.perStep = up.Upload.Factor(1/perToken(part.counts), on)
	if weight := g.klWeight(); weight != 0 {
		in.beta = up.Upload.Factor(weight, on)
	}
	up.Key += fmt.Sprint(part.fresh, part.known, in.beta != nil, in.reference != nil, part.refKnown)
	return in
}

// Loss implements phases.Algorithm: a part's share of the loss, a scalar with gradient, and the tensors of readout.
func (g *Phase) Loss(in *inputs) (torchx.Tensor, []torchx.Tensor) {
	ref, bonus := view{}, g.opt.EntropyWeight > 0
	if in.reference != nil {
		ref = g.frozen(in.reference) // no gradient
	}
	forward := selector.ForwardOptions{Temperature: in.temperature, Reference: ref.dist, Dist: bonus && !g.text, Entropy: bonus && g.text}
	out := in.policy(forward) // with gradient, dropout off
	compute := g.loss
	if g.chosen.fused(g.opt) && !in.part.fresh && objective.OneKernel(out.LogP) {
		compute = g.kernelLoss
	}
	loss, read := compute(out, ref, in)
	return loss, read.list()
}

// loss is the formula of Loss (losses.go).
func (g *Phase) loss(out selector.Output, ref view, in *inputs) (loss torchx.Tensor, m readout[torchx.Tensor]) {
	logp := g.perRatio(out.LogP)                               // [B, G], or [B, G, T] with ratio=token
	old := g.oldOf(in, view{logp: logp, steps: out.LogP}, ref) // no gradient
	denominator := old.logp                                    // like logp
	if in.part.fresh {
		denominator = torchx.Detach(logp) // equals old but for the last bits: the ratio is exactly 1
		if g.old == g.reference {
			ref.logp = denominator
		}
	}

	logRatio := g.logRatio(logp, denominator, in) // [B, G], or [B, G, T] with one ratio a token
	ratio := torchx.Exp(clampTo(logRatio, g.opt.MaxLogRatio))
	low, high := g.opt.Clip.sides()
	weight, correction := g.correct(in, old) // like in.weight
	ppo := surrogate(ratio, in.adv, weight, low, high, in.minusShare)
	loss = ppo
	m = readout[torchx.Tensor]{ppo: ppo, logRatio: logRatio, logp: logp, old: old.logp, entropy: out.Entropy,
		correction: correction}
	if in.reference != nil {
		klTerms := g.kl(out, ref, logp, in)                               // like logp, nats, with gradient
		m.kl = in.share.Times(torchx.Sum(torchx.Mul(klTerms, in.weight))) // scalar
		m.klSequence = m.kl
		if g.opt.Ratio == "token" {
			m.klSequence = in.perCandidate.Times(torchx.Sum(torchx.Mul(klTerms, in.mask)))
		}
	}
	if in.beta != nil {
		loss = torchx.Add(ppo, in.beta.Times(m.kl))
	}
	if g.opt.EntropyWeight > 0 {
		loss = torchx.Sub(loss, torchx.Scale(g.entropyBonus(out, in), g.opt.EntropyWeight))
	}

	if in.part.keepsRef() {
		m.ref = ref.logp
	}
	if in.part.batch.Sampled != nil {
		m.oldSteps = old.steps
	}
	return loss, m
}

func (g *Phase) klWeight() float64 {
	if g.chosen.loss.NoKL {
		return 0
	}
	return g.beta.Value()
}

// kl is the penalty, like logp: nats per sequence, or per step with ratio=token; with gradient.
func (g *Phase) kl(out selector.Output, ref view, logp torchx.Tensor, in *inputs) torchx.Tensor {
	switch {
	case g.chosen.kl.Sampled != nil:
		return g.chosen.kl.Sampled(torchx.Sub(logp, ref.logp), g.opt.MaxLogRatio)
	case g.opt.Ratio == "token":
		return out.KL
	}
	perStep := out.KL
	if !in.mask.Nil() {
		perStep = torchx.Mul(perStep, in.mask)
	}
	return torchx.Sum(perStep, 2)
}

// logRatio returns log ρ, shaped like logp; with a mean ratio [B, G] or [B, G, 1].
func (g *Phase) logRatio(logp, old torchx.Tensor, in *inputs) torchx.Tensor {
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
