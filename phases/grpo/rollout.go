package grpo

import (
	"slices"

	"fulcrum/internal/rng"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/selector"
)

// Rollouts lists where groups may come from (grpo.rollout).
func Rollouts() []Rollout {
	return []Rollout{
		// recorded groups
		{Name: "offline", Draw: func(g *Phase, queries []int, _ ...int) (*selector.Batch, error) { return g.src.Recorded(queries), nil }},
		// scored samples of the old policy
		{Name: "online", Samples: true, Draw: func(g *Phase, queries []int, counters ...int) (*selector.Batch, error) {
			key := rng.Key(g.env.Seed, "rollout "+g.name, counters...)
			return phases.SampleGroups(g.old, g.src, queries, g.opt.GroupSize, g.env.Data.Shots, g.opt.SampleTemp*g.temp.Value(), key)
		}},
	}
}

// Rollout is one source of groups.
type Rollout struct {
	Name string
	// Samples says that the old policy draws the groups: ratios are then importance weights, and every log-probability of
	// the loss is taken at the temperature of the draw.
	Samples bool
	// Draw returns the groups of queries. What it draws depends on the old policy, the seed and the counters alone.
	Draw func(g *Phase, queries []int, counters ...int) (*selector.Batch, error)
}

func (r Rollout) named() string { return r.Name }

// Silences lists what may happen to groups without a signal (grpo.zero_variance).
func Silences() []Silence {
	return []Silence{
		{Name: "keep", Fill: func(_ *Phase, _ int, _ []int, drawn *selector.Batch) (groups, all *selector.Batch, err error) {
			return drawn, drawn, nil // the KL still acts on them
		}},
		{Name: "filter", Fill: func(g *Phase, _ int, _ []int, drawn *selector.Batch) (groups, all *selector.Batch, err error) {
			return g.withSignal(drawn), drawn, nil
		}},
		{Name: "resample", Resamples: true, Fill: (*Phase).resample},
	}
}

// Silence is one way to treat groups whose rewards are equal.
type Silence struct {
	Name      string
	Resamples bool // it draws groups of other queries
	// Fill returns the groups of a step, and all that were drawn for it.
	Fill func(g *Phase, step int, queries []int, drawn *selector.Batch) (groups, all *selector.Batch, err error)
}

func (s Silence) named() string { return s.Name }

// resample draws groups of other queries until the batch is full (dynamic sampling, DAPO).
func (g *Phase) resample(step int, queries []int, drawn *selector.Batch) (groups, all *selector.Batch, err error) {
	groups = g.withSignal(drawn)
	others := rng.New(g.env.Seed, "resample "+g.name, step).Perm(g.src.Len()) // the order in which other queries help out
	others = slices.DeleteFunc(others, func(q int) bool { return slices.Contains(queries, q) })
	for round := 1; round <= g.opt.MaxResamples; round++ {
		missing := min(len(queries)-groups.B(), len(others))
		if missing == 0 {
			break
		}
		more, err := g.chosen.rollout.Draw(g, others[:missing], step, round)
		if err != nil {
			return nil, nil, err
		}
		others = others[missing:]
		drawn = selector.Join(g.src, drawn.G, drawn, more)
		groups = selector.Join(g.src, drawn.G, groups, g.withSignal(more))
	}
	return groups, drawn, nil
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

// rollout is the batch of one or more passes: groups, what they are worth, and what the first pass found.
type rollout struct {
	drawn       *selector.Batch // whole groups, those without a signal included
	batch       *selector.Batch // [B, G, T], the curriculum's top k
	index       []int           // [B*G] where its candidates stand in their recorded groups
	adv         []float64       // [B*G]
	counts      Counts          // of what the loss averages over
	temperature float64         // of the policy (grpo.temperature) when it was made
	fresh       bool            // the old policy has the very weights that this pass's numerator has
	measured    rolloutMetrics

	// Log-probabilities under the old and the reference policy, one a ratio, which the first of several passes computes and later
	// ones use; nil: not kept.
	old, ref []float32
	known    bool // they are computed
}

// keepsRef reports whether this pass computes the reference's log-probabilities for later ones.
func (r rollout) keepsRef() bool { return r.ref != nil && !r.known }

// part is the rollout of the queries from … to-1. It shares the memory of the whole one.
func (r rollout) part(from, to int) rollout {
	lo, hi := from*r.batch.G, to*r.batch.G
	cut := func(kept []float32) []float32 {
		width := len(kept) / len(r.batch.Valid)
		return kept[lo*width : hi*width]
	}
	r.old, r.ref = cut(r.old), cut(r.ref)
	r.batch, r.index, r.adv = r.batch.Part(from, to), r.index[lo:hi], r.adv[lo:hi]
	return r
}

// collect makes the rollout of a step: recorded groups or fresh samples, their advantages over the whole group, then the
// curriculum's top k.
func (g *Phase) collect(at phases.At) (r rollout, err error) {
	drawn, err := g.chosen.rollout.Draw(g, at.Queries, at.Step)
	if err != nil {
		return r, err
	}
	groups, drawn, err := g.chosen.silence.Fill(g, at.Step, at.Queries, drawn)
	if err != nil {
		return r, err
	}
	if err := phases.CheckRewards(drawn, g.env.AllowNonFinite); err != nil {
		return r, err
	}
	top, adv, before, after := g.advantagesOf(groups, at.Epoch)
	if drawn != groups {
		_, before = advantage.Compute(drawn.Rewards, drawn.Valid, drawn.B(), drawn.G, g.opt.Advantage)
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
	r = rollout{drawn: drawn, batch: batch, index: top.Index, adv: adv, counts: counts, temperature: g.temp.Value()}
	if n := len(batch.Valid) * g.width(batch); g.opt.NumIterations > 1 {
		r.old = make([]float32, n)
		if g.chosen.kl.Sampled != nil {
			r.ref = make([]float32, n)
		}
	}
	r.measured = measureRollout(drawn, batch, adv, before, after)
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
	return g.opt.Curriculum.Apply(groups.Rewards, groups.Valid, groups.B(), groups.G, epoch, g.opt.Advantage)
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
