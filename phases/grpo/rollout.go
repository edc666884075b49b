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
func Rollouts() []Rollout { return []Rollout{rolloutOffline(), rolloutOnline()} }

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

// rolloutOffline takes recorded groups.
func rolloutOffline() Rollout {
	return Rollout{Name: "offline", Draw: func(g *Phase, queries []int, _ ...int) (*selector.Batch, error) {
		return g.src.Recorded(queries), nil
	}}
}

// rolloutOnline takes scored samples of the old policy.
func rolloutOnline() Rollout {
	return Rollout{Name: "online", Samples: true, Draw: func(g *Phase, queries []int, counters ...int) (*selector.Batch, error) {
		key := rng.Key(g.env.Seed, "rollout "+g.name, counters...)
		return phases.SampleGroups(g.old, g.src, queries, g.opt.GroupSize, g.env.Data.Shots, g.opt.SampleTemp*g.temp.Value(), key)
	}}
}

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
	batch       *selector.Batch // [B, G, T], the curriculum's top k
	index       []int           // [B*G] where its candidates stand in their recorded groups
	adv         []float64       // [B*G]
	counts      Counts          // of what the loss averages over
	temperature float64         // of the policy (grpo.temperature) when it was made
	fresh       bool            // the old policy has the very weights that the first pass's numerator has
	measured    rolloutMetrics

	// Log-probabilities under the old and the reference policy, one a ratio, that the first pass computed and
	// later ones use; nil: not kept.
	old, ref []float32
}

// collect makes a rollout: recorded groups or fresh samples, their advantages over the whole group, then the
// curriculum's top k.
func (g *Phase) collect(epoch, step int, queries []int) error {
	drawn, err := g.chosen.rollout.Draw(g, queries, step)
	if err != nil {
		return err
	}
	groups, drawn, err := g.chosen.silence.Fill(g, step, queries, drawn)
	if err != nil {
		return err
	}
	if err := phases.CheckRewards(drawn, g.env.AllowNonFinite); err != nil {
		return err
	}
	top, adv, before, after := g.advantagesOf(groups, epoch)
	if drawn != groups {
		_, before = advantage.Compute(drawn.Rewards, drawn.Valid, drawn.B(), drawn.G, g.opt.Advantage)
	}
	batch := groups.Take(top.K, top.Index, top.Valid)
	counts := Counts{Candidates: batch.NumValid(), Longest: g.env.Data.Shots}
	if counts.Longest == 0 {
		counts.Longest = batch.T
	}
	g.rollout = rollout{batch: batch, index: top.Index, adv: adv, counts: counts, temperature: g.temp.Value()}
	if g.opt.MaskTruncated {
		dropTruncated(batch)
	}
	g.rollout.counts.Tokens = objective.CountSteps(batch)
	g.rollout.measured = measureRollout(drawn, batch, adv, before, after)
	g.rollout.measured.GroupSize, g.rollout.measured.TopK = groups.G, top.K
	if g.chosen.silence.Resamples {
		g.rollout.measured.ResampledGroups = new(drawn.B() - len(queries))
	}
	if g.text {
		g.rollout.measured.TextMetrics = phases.MeasureTexts(drawn, g.rollout.counts.Tokens)
	}
	show := g.opt.Completions.Due(g.showNext, step, g.opt.NumIterations)
	g.showNext = false
	if !show || !g.text {
		return nil
	}
	return g.opt.Completions.Record(g.env.Rec, g.name, epoch, step, drawn, g.opt.Advantage)
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
