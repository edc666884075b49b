package selector

import (
	"fmt"
	"hash/fnv"

	"fulcrum/internal/rng"
	"fulcrum/rewardutil/group"
)

// Control replaces the rewards of sampled groups in training (configuration key control).
type Control func(b *Batch)

// NewControl returns what a control does to scored samples: placebo_within gives the rewards of each group to its candidates in another,
// random order; majority rewards a candidate with 1 for the answer that most of its group give, and with 0 for another. nil: nothing.
func NewControl(name string, seed int64, answer func(b *Batch, i, g int) string) Control {
	switch name {
	case "placebo_within":
		return func(b *Batch) { shuffle(b, seed) }
	case "majority":
		return func(b *Batch) {
			answers := make([]string, len(b.Valid))
			for at, ok := range b.Valid {
				if ok {
					answers[at] = answer(b, at/b.G, at%b.G)
				}
			}
			b.Rewards = group.Agreement(answers, b.Valid, b.G)
		}
	}
	return nil
}

// shuffle permutes the rewards inside each group. A reward may keep its place: without that, the others would be better on average
// than a bad candidate and worse than a good one, and the placebo would teach the opposite of the rewards. The order follows from what
// was drawn: one order for every draw of a query would teach it something, if only noise, epoch after epoch.
func shuffle(b *Batch, seed int64) {
	for i, q := range b.Queries {
		rewards, at := group.Gather(group.Row(b.Rewards, b.Valid, i, b.G))
		drawn := fnv.New64a()
		for _, g := range at {
			fmt.Fprint(drawn, b.Chosen(i, g))
		}
		for k, from := range rng.New(seed, "placebo within", int(b.Source.ID(q)), int(drawn.Sum64())).Perm(len(at)) {
			b.Rewards[i*b.G+at[k]] = rewards[from]
		}
	}
}
