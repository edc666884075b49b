package grpo

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// fused reports whether kernelLoss computes the chosen loss.
func (c chosen) fused(o Options) bool {
	estimate := c.kl.Sampled == nil || c.kl.Kernel != torchx.Given
	return c.loss.Kernel && estimate && o.Ratio == "sequence" && o.EntropyWeight == 0 && !o.Correction.on()
}

// kernelLoss computes loss by one CUDA kernel.
func (g *Phase) kernelLoss(out selector.Output, ref view, in *inputs) (torchx.Tensor, readout[torchx.Tensor]) {
	old := g.oldOf(in, view{}, ref).logp
	low, high := g.opt.Clip.sides()
	s := torchx.Surrogate{Old: old, Adv: in.adv, Weight: in.weight, Ref: ref.logp, Estimate: g.chosen.kl.Kernel,
		Share: in.share, MinusShare: in.minusShare, Beta: in.beta, Limit: g.opt.MaxLogRatio, Low: low, High: high}
	switch {
	case in.reference == nil:
		s.Estimate, s.Penalty = torchx.Given, torchx.FullLike(in.adv, 0, in.adv.DType(), g.shape(in.part.batch, 0)...)
	case s.Estimate == torchx.Given:
		s.Penalty = g.kl(out, ref, torchx.Tensor{}, in)
	}
	l := s.Loss(out.LogP)
	m := readout[torchx.Tensor]{ppo: l.PPO, kl: l.KL, klSequence: l.KL, logRatio: l.LogRatios, logp: l.Sequences, old: old,
		entropy: out.Entropy}
	if in.part.keepsRef() {
		m.ref = ref.logp
	}
	return l.Loss, m
}
