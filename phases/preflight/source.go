package preflight

import (
	"fmt"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/selector"
)

// part is a Source of some of another's queries. It keeps the batch that was last taken from it, and can
// add padding to what it gives out.
type part struct {
	inner   selector.Source
	queries []int // of inner
	pad     bool
	steps   bool    // padding adds a step too: the policy's candidates have different lengths anyway
	scale   float64 // of the rewards; 0: as they are
	flip    bool    // give out rewards of the other sign

	last   *selector.Batch // what a phase took last, rewards included; its Source is inner
	strict bool            // never make rewards up
}

func (p *part) Name() string   { return p.inner.Name() }
func (p *part) Len() int       { return len(p.queries) }
func (p *part) ID(i int) int64 { return p.inner.ID(p.queries[i]) }

func (p *part) at(queries []int) []int {
	return list.Map(queries, func(q int) int { return p.queries[q] })
}

// Behind returns the inner source, where nothing is kept or made up.
func (p *part) Behind(queries []int) (selector.Source, []int) { return p.inner, p.at(queries) }

func (p *part) Recorded(queries []int) *selector.Batch {
	b := p.padded(p.inner.Recorded(p.at(queries)))
	p.take(b)
	return b
}

// take keeps a batch and may change the rewards that the phase sees.
func (p *part) take(b *selector.Batch) {
	if !p.strict && !spread(b) {
		makeUp(b)
	}
	for i := range b.Rewards {
		if p.scale != 0 {
			b.Rewards[i] *= p.scale
		}
	}
	kept := *b
	kept.Rewards = slices.Clone(b.Rewards)
	p.last = &kept
	if !p.flip {
		return
	}
	for i := range b.Rewards {
		b.Rewards[i] = -b.Rewards[i]
	}
}

type scored struct {
	*part
	scorer selector.Scorer
}

func (s scored) CanScore() bool { return s.scorer.CanScore() }

func (s scored) Score(b *selector.Batch) error {
	if err := s.scorer.Score(b); err != nil {
		return err
	}
	s.take(b)
	return nil
}

func (s scored) Enumerate(queries []int, steps int) (*selector.Batch, error) {
	all, ok := s.scorer.(selector.Enumerator)
	if !ok {
		return nil, fmt.Errorf("%s: selections cannot be enumerated", s.Name())
	}
	b, err := all.Enumerate(s.at(queries), steps)
	if err != nil {
		return nil, err
	}
	return s.padded(b), nil
}

func (s scored) Accuracy(b *selector.Batch) ([]float64, error) { return s.scorer.Accuracy(b) }

// newPart returns the part, and the source that a phase is given.
func newPart(inner selector.Source, queries []int) (*part, selector.Source) {
	p := &part{inner: inner, queries: queries}
	if s, ok := inner.(selector.Scorer); ok {
		return p, scored{p, s}
	}
	return p, p
}

// partOf returns the part behind a source, nil where there is none.
func partOf(src selector.Source) *part {
	switch s := src.(type) {
	case *part:
		return s
	case scored:
		return s.part
	}
	return nil
}

// spread reports whether some group has rewards that differ.
func spread(b *selector.Batch) bool {
	return slices.ContainsFunc(stat.Indices(b.B()), func(i int) bool { return groupSpread(b, i) })
}

func groupSpread(b *selector.Batch, i int) bool {
	rewards := valid(b, i)
	return slices.ContainsFunc(rewards[min(1, len(rewards)):], func(r float64) bool { return r != rewards[0] })
}

// makeUp gives the different choices of a group different rewards, so that a step has something to learn of the best of them too.
func makeUp(b *selector.Batch) {
	for i := range b.B() {
		seen := map[string]int{}
		for g, at := range b.Candidates(i) {
			choice := fmt.Sprint(b.Scored(i, g))
			if _, ok := seen[choice]; !ok {
				seen[choice] = len(seen)
			}
			b.Rewards[at] = 1 / float64(1+seen[choice])
		}
	}
}

// padded returns a batch with one more, invalid, candidate a group and perhaps one more step that counts nowhere.
func (p *part) padded(b *selector.Batch) *selector.Batch {
	if !p.pad {
		return b
	}
	index, valid := make([]int, len(b.Valid)+b.B()), make([]bool, len(b.Valid)+b.B())
	for from, ok := range b.Valid {
		to := from + from/b.G
		index[to], valid[to] = from%b.G, ok
	}
	out := b.Take(b.G+1, index, valid)
	if p.steps {
		out.T++
		out.Actions, out.Mask = selector.Wider(out.Actions, b.T, out.T), selector.Wider(out.Mask, b.T, out.T)
		out.Sampled = selector.Wider(out.Sampled, b.T, out.T)
	}
	return out
}

// choose returns n queries of a source to try a phase on, in ascending order: drawn by seed, and with recorded
// candidates of different rewards where some of those looked at have them.
func choose(src selector.Source, n int, seed int64, phase string, recorded bool) []int {
	const looks = 16 // times n
	order := rng.New(seed, "preflight "+phase).Perm(src.Len())
	n = min(n, len(order))
	if !recorded {
		return slices.Sorted(slices.Values(order[:n]))
	}
	var good, fair []int // with a signal; with candidates
	for _, q := range order[:min(looks*n, len(order))] {
		b := src.Recorded([]int{q})
		switch {
		case groupSpread(b, 0):
			good = append(good, q)
		case b.NumValid() > 0:
			fair = append(fair, q)
		}
		if len(good) == n {
			break
		}
	}
	chosen := append(good, fair...)
	return slices.Sorted(slices.Values(chosen[:min(n, len(chosen))]))
}
