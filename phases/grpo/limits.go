package grpo

import (
	"fulcrum/phases"
	"fulcrum/phases/doctor"
)

// Limits is what the options promise about the phase's rows.
func (g *Phase) Limits() doctor.Limits {
	o := g.opt
	lim := phases.LearnLimits(o.LR, g.sched, g.optim)
	lim.Online = o.Rollout == "online"
	low, high := o.Clip.sides()
	p := &doctor.PolicyLoss{
		ClipLow: low, ClipHigh: high, AdvantageClip: o.Advantage.Clip,
		Centred:     o.Advantage.Centred() && !o.Compat,
		EarlyEpochs: o.Curriculum.EarlyEpochs, EarlyTopK: o.Curriculum.EarlyTopK,
		OldPolicy: o.OldPolicy, UpdateOldAfter: o.UpdateOldAfter, OldIsRebuilt: o.OldPolicyHeads != nil,
		SumOfParts:     !o.Compat || o.EntropyWeight == 0,
		EntropyWeight:  o.EntropyWeight,
		Surrogate:      o.Ratio == "sequence" && !o.MaskTruncated && !o.Compat,
		KLPerCandidate: o.Ratio == "sequence" && !o.MaskTruncated && o.Loss != "ppo_clip",
		KL: doctor.KL{
			Reference: o.KL.Reference, SyncCopies: o.KL.SyncMix == 1, NonNegative: o.KL.Estimator != "k1",
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
