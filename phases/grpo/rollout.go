package grpo

import (
	"math"
	"slices"

	"fulcrum/internal/rng"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/selector"
)

// rollout is the batch in hand: groups, what they are worth, and what the first pass over them found.
type rollout struct {
	batch       *selector.Batch // [B, G, T], the curriculum's top k
	index       []int           // [B*G] where its candidates stand in their recorded groups
	adv         []float64       // [B*G]
	candidates  int             // that the loss averages over: those of batch and the truncated ones it masks
	tokens      int             // scored steps of batch
	temperature float64         // of the policy (grpo.temperature) when it was made
	info        phases.Metrics  // what was measured when it was made

	// Log-probabilities under the old and the reference policy, one a ratio, that the first pass computed and
	// later ones use; nil: not kept.
	old, ref []float32
}

// collect makes the batch in hand: recorded groups or fresh samples, their advantages over the whole
// group, then the curriculum's top k.
func (g *Phase) collect(epoch, step int, queries []int) error {
	groups, drawn, err := g.gather(step, queries)
	if err == nil {
		err = phases.CheckRewards(drawn, g.optim.GoOn)
	}
	if err != nil {
		return err
	}
	var top advantage.Selection
	var adv []float64
	var before, after advantage.Stats
	if g.opt.Compat {
		top, adv, after = g.opt.Curriculum.ApplyCompat(objective.NormalizeGroups(groups, g.env.Data.Normalize), groups.Valid, groups.B(), groups.G, epoch, g.opt.Advantage.Clip)
		before = after
	} else {
		top, adv, before, after = g.opt.Curriculum.Apply(groups.Rewards, groups.Valid, groups.B(), groups.G, epoch, g.opt.Advantage)
	}
	if drawn != groups {
		_, before = advantage.Compute(drawn.Rewards, drawn.Valid, drawn.B(), drawn.G, g.opt.Advantage)
	}
	batch := groups.Take(top.K, top.Index, top.Valid)
	g.hand = rollout{batch: batch, index: top.Index, adv: adv, candidates: batch.NumValid(), temperature: g.temp.Value()}
	if g.opt.MaskTruncated {
		dropTruncated(batch)
	}
	g.hand.tokens = objective.CountSteps(batch)
	g.hand.info = phases.Metrics{
		"mean_reward": objective.MeanReward(drawn), "reward_std": advantage.GroupStd(drawn.Rewards, drawn.Valid, drawn.B(), drawn.G),
		"mean_advantage": after.Mean, "std_advantage": after.Std, "max_advantage": after.MaxAbs,
		"advantage_clipped": objective.Share(after.Clipped, after.Entries),
		"signal_share":      before.SignalShare(), "signal_share_top_k": after.SignalShare(),
		"constant_good_groups": before.ConstantGood, "constant_bad_groups": before.ConstantBad,
		"adv_hist": advantageHistogram(adv, batch.Valid),
		"groups":   before.Groups - before.Empty, "group_size": groups.G,
		"top_k": top.K, "items": batch.NumValid(),
	}
	if g.opt.ZeroVariance == "resample" {
		g.hand.info["resampled_groups"] = drawn.B() - len(queries)
	}
	if g.text {
		phases.AddTextMetrics(g.hand.info, drawn)
		g.hand.info["tokens"] = g.hand.tokens
	}
	show := g.opt.Completions.Due(g.showNext, step, g.opt.NumIterations)
	g.showNext = false
	if !show || !g.text {
		return nil
	}
	return g.opt.Completions.Record(g.env.Rec, g.name, epoch, step, drawn, g.opt.Advantage)
}

// gather returns the groups of a step and all that were drawn for it: the groups without a signal are left
// out where zero_variance says so, and those of other queries drawn instead.
func (g *Phase) gather(step int, queries []int) (groups, drawn *selector.Batch, err error) {
	drawn, err = g.draw(queries, step)
	if err != nil || g.opt.ZeroVariance == "keep" {
		return drawn, drawn, err
	}
	groups = g.withSignal(drawn)
	if g.opt.ZeroVariance == "filter" {
		return groups, drawn, nil
	}
	others := rng.New(g.env.Seed, "resample "+g.name, step).Perm(g.src.Len()) // the order in which other queries help out
	others = slices.DeleteFunc(others, func(q int) bool { return slices.Contains(queries, q) })
	for round := 1; round <= g.opt.MaxResamples; round++ {
		missing := min(len(queries)-groups.B(), len(others))
		if missing == 0 {
			break
		}
		more, err := g.draw(others[:missing], step, round)
		if err != nil {
			return nil, nil, err
		}
		others = others[missing:]
		drawn = selector.Join(g.src, drawn.G, drawn, more)
		groups = selector.Join(g.src, drawn.G, groups, g.withSignal(more))
	}
	return groups, drawn, nil
}

// draw returns the recorded groups of queries, or scored samples of the old policy: its ratios are then importance
// weights. The samples depend on that policy, the seed and the counters alone.
func (g *Phase) draw(queries []int, counters ...int) (*selector.Batch, error) {
	if g.opt.Rollout == "offline" {
		return g.src.Recorded(queries), nil
	}
	return phases.SampleGroups(g.old, g.src, queries, g.opt.GroupSize, g.env.Data.Shots, g.opt.SampleTemp*g.temp.Value(), rng.Key(g.env.Seed, "rollout "+g.name, counters...))
}

// withSignal returns the groups whose rewards differ.
func (g *Phase) withSignal(b *selector.Batch) *selector.Batch {
	var places []int
	for i, ok := range advantage.HasSignal(b.Rewards, b.Valid, b.B(), b.G, g.opt.Advantage) {
		if ok {
			places = append(places, i)
		}
	}
	if len(places) == b.B() {
		return b
	}
	return b.Groups(places)
}

// dropTruncated takes completions that were cut at the length limit out of the loss: what such a text is
// worth says little about its tokens (overlong filtering, DAPO, arXiv:2503.14476 §3.4). As in TRL, their
// rewards stay in the baseline and they still count where the loss is a mean over candidates; their tokens
// count nowhere.
func dropTruncated(b *selector.Batch) {
	for at, ok := range b.Valid {
		if ok && b.Cut(at) {
			b.Drop(at)
		}
	}
}

// advantageBins is the length of adv_hist: bins of width 0.5 over ±5, the default clip.
const advantageBins = 20

// advantageHistogram counts valid advantages in 20 equal bins over [-5, 5].
func advantageHistogram(adv []float64, valid []bool) []float64 {
	h := make([]float64, advantageBins)
	for i, ok := range valid {
		if ok && !math.IsNaN(adv[i]) {
			h[max(0, min(advantageBins-1, int(math.Floor((adv[i]+5)/10*advantageBins))))]++
		}
	}
	return h
}
