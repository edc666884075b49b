package grpo

import (
	"fulcrum/phases/doctor"
)

// Expected implements phases.Expecter.
func (g *Phase) Expected() doctor.Limits {
	o := g.opt
	lim := g.optim.Expected(o.LR, g.sched)
	low, high := o.Clip.sides()
	p := &doctor.PolicyLoss{
		ClipLow: low, ClipHigh: high, AdvantageClip: o.Advantage.Clip,
		Centred:     o.Advantage.Centred() && o.Hooks.Advantages == nil,
		EarlyEpochs: o.Curriculum.EarlyEpochs, EarlyTopK: o.Curriculum.EarlyTopK,
		OldPolicy:      o.OldPolicy,
		OldIsFresh:     func(e doctor.Limits, step int) bool { return g.chosen.old.Fresh(o, e, step) },
		SumOfParts:     o.Hooks.Advantages == nil || o.EntropyWeight == 0,
		EntropyWeight:  o.EntropyWeight,
		Surrogate:      o.Ratio == "sequence" && !o.MaskTruncated && o.Hooks.Advantages == nil,
		KLPerCandidate: o.Ratio == "sequence" && !o.MaskTruncated && !g.chosen.loss.NoKL,
		KL: doctor.KL{
			Reference: o.KL.Reference, SyncCopies: o.KL.SyncMix == 1, NonNegative: !g.chosen.kl.Signed,
			Controller: o.KL.Controller, Update: o.KL.Update,
			BandMin: o.KL.TargetMin, BandMax: o.KL.TargetMax, BetaMin: o.KL.BetaMin, BetaMax: o.KL.BetaMax,
		},
	}
	if o.Curriculum.LateTopK != nil {
		p.LateTopK = *o.Curriculum.LateTopK
	}
	if o.KL.SyncSteps != nil {
		p.KL.SyncSteps = *o.KL.SyncSteps
	}
	if o.KL.Beta == 0 && !o.KL.LiftZero { // such a beta stays
		p.KL.Controller = "fixed"
	}
	lim.Policy = p
	return lim
}
