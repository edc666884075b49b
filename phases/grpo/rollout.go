package grpo

import (
	"context"

	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/selector"
)

// rollout is the batch of one or more passes: groups, advantages, and log-probabilities kept from the first pass.
type rollout struct {
	drawn       *selector.Batch // whole groups, including those without a signal
	batch       *selector.Batch // [B, G, T], the curriculum's top k
	index       []int           // [B*G] position of each candidate in its recorded group
	adv         []float64       // [B*G]
	counts      Counts          // for the loss's averages
	temperature float64         // of the policy (grpo.temperature) when the rollout was made
	step        int             // of the phase
	fresh       bool            // the old policy has the weights of this pass's numerator
	measured    rolloutMetrics

	// Log-probabilities under the old and the reference policy, one for each ratio, computed by the first of several passes (of the
	// reference: the first that measures the KL) and used by the later ones; nil: not kept.
	old, ref   []float32
	correction []float32 // weights of grpo.correction, kept with old
	known      bool      // old is computed
	refKnown   bool      // ref is
}

// keepsRef reports whether a pass that measures the KL keeps the reference's log-probabilities for later ones.
func (r rollout) keepsRef() bool { return r.ref != nil && !r.refKnown }

// part returns the rollout of some of the queries. It shares the memory of r.
func (r rollout) part(of phases.Span) rollout {
	lo, hi := of.From*r.batch.G, of.To*r.batch.G
	cut := func(kept []float32) []float32 {
		width := len(kept) / len(r.batch.Valid)
		return kept[lo*width : hi*width]
	}
	r.old, r.ref, r.correction = cut(r.old), cut(r.ref), cut(r.correction)
	r.batch, r.index, r.adv = r.batch.Part(of.From, of.To), r.index[lo:hi], r.adv[lo:hi]
	return r
}

// Collect implements phases.Algorithm: recorded groups or fresh samples, their advantages over the whole group, then the curriculum's
// top k. Later passes over a batch take the rollout of the first.
func (g *Phase) Collect(_ context.Context, at phases.At) (*rollout, error) {
	if at.Pass > 0 {
		again := *g.rollout
		again.step, again.fresh = at.Step, false
		again.measured.ReaderCalls = 0
		return &again, nil
	}
	drawn, err := g.draw(at.Queries, at.Step)
	if err != nil {
		return nil, err
	}
	groups, drawn, err := g.chosen.silence.Fill(g, at.Step, at.Queries, drawn)
	if err != nil {
		return nil, err
	}
	if err := phases.CheckRewards(drawn, g.env.AllowNonFinite); err != nil {
		return nil, err
	}
	top, adv, before, after := g.advantagesOf(groups, at.Epoch)
	if drawn != groups {
		_, before = advantage.Compute(drawn.Gains(), drawn.Valid, drawn.B(), drawn.G, g.opt.Advantage)
	}
	batch := groups.Take(top.K, top.Index, top.Valid)
	counts := Counts{Candidates: batch.NumValid(), Longest: g.env.Data.Shots}
	if counts.Longest == 0 {
		counts.Longest = batch.T
	}
	if g.opt.MaskTruncated {
		dropTruncated(batch)
	}
	counts.Tokens = objective.CountSteps(batch)
	r := &rollout{drawn: drawn, batch: batch, index: top.Index, adv: adv, counts: counts, temperature: g.temp.Value(), step: at.Step,
		fresh: g.chosen.old.From == ofPolicy || at.Step == g.refreshed && g.startsOld}
	if n := len(batch.Valid) * g.width(batch); g.opt.NumIterations > 1 {
		r.old = make([]float32, n)
		r.correction = g.opt.Correction.kept(batch)
		if g.chosen.kl.Sampled != nil {
			r.ref = make([]float32, n)
		}
	}
	r.measured = g.measureRollout(drawn, batch, adv, before, after)
	r.measured.GroupSize, r.measured.TopK = groups.G, top.K
	if g.chosen.silence.Resamples {
		r.measured.ResampledGroups = new(drawn.B() - len(at.Queries))
	}
	if g.text {
		r.measured.TextMetrics = phases.MeasureTexts(drawn, counts.Tokens)
	}
	return r, nil
}

// advantagesOf chooses the candidates of an epoch and returns their advantages.
func (g *Phase) advantagesOf(groups *selector.Batch, epoch int) (top advantage.Selection, adv []float64, before, after advantage.Stats) {
	if of := g.opt.Hooks.Advantages; of != nil {
		top, adv, after = of(groups, g.opt, epoch)
		return top, adv, after, after
	}
	return g.opt.Curriculum.Apply(groups.Gains(), groups.Valid, groups.B(), groups.G, epoch, g.opt.Advantage)
}

// dropTruncated takes completions that were cut at the length limit out of the loss: the reward of a cut text says
// little about its tokens (overlong filtering, DAPO, arXiv:2503.14476 §3.4). As in TRL, their rewards stay in the
// baseline and they still count where the loss is a mean over candidates; their tokens count nowhere.
func dropTruncated(b *selector.Batch) {
	for at, ok := range b.Valid {
		if ok && b.Cut(at) {
			b.Drop(at)
		}
	}
}
