package grpo

import (
	"slices"

	"fulcrum/internal/rng"
	"fulcrum/phases"
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
	// Samples: the old policy draws the groups. Ratios are then importance weights, and all log-probabilities of the loss
	// are taken at the temperature of the draw.
	Samples bool
	// Draw returns the groups of queries. They depend on the old policy, the seed and the counters alone.
	Draw func(g *Phase, queries []int, counters ...int) (*selector.Batch, error)
}

func (r Rollout) named() string { return r.Name }

// draw returns the groups of queries, which the processes of a run share where they are samples.
func (g *Phase) draw(queries []int, counters ...int) (*selector.Batch, error) {
	if !g.chosen.rollout.Samples {
		return g.anchored(queries, counters...)
	}
	return g.env.Draw(g.src, queries, func(queries []int, shard ...int) (*selector.Batch, error) {
		return g.anchored(queries, slices.Concat(counters, shard)...)
	})
}

// anchored returns the groups of queries, with what the reference policy earns greedily as their anchor where the advantages want one.
func (g *Phase) anchored(queries []int, counters ...int) (*selector.Batch, error) {
	b, err := g.chosen.rollout.Draw(g, queries, counters...)
	if err != nil || !g.opt.Advantage.Anchored() {
		return b, err
	}
	src, at := selector.Behind(g.src, queries)
	own, _ := g.reference.Decode(src, at, g.env.Data.Shots, 1)
	if err := src.(selector.Scorer).Score(own); err != nil { // Check has seen that it scores
		return nil, err
	}
	b.Anchors = own.Rewards
	return b, nil
}

// Silences lists the treatments of groups without a signal (grpo.zero_variance).
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
	// Fill returns the groups of a step, and all groups drawn for it.
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

func (g *Phase) withSignal(b *selector.Batch) *selector.Batch {
	var places []int
	for i, ok := range advantage.HasSignal(b.Gains(), b.Valid, b.B(), b.G, g.opt.Advantage) {
		if ok {
			places = append(places, i)
		}
	}
	if len(places) == b.B() {
		return b
	}
	return b.Groups(places)
}
