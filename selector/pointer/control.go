package pointer

import (
	"fmt"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/selector"
)

// Control changes the rewards of training, so that a remaining gain cannot come from them. placebo gives each query the recorded
// groups and the reward table of another query with a pool of the same size, by position in the pool; placebo_within permutes the
// rewards inside each group, recorded or sampled; majority rewards sampled selections that are the most frequent of their group; none
// changes nothing. No query, and no recorded candidate of a group of two, keeps its own rewards. Evaluations read the set behind the
// source, which keeps the true rewards.
func (s *Source) Control(name string, seed int64) error {
	s.from, s.within = nil, nil
	s.control = selector.NewControl(name, seed, func(b *selector.Batch, i, g int) string { return fmt.Sprint(b.Chosen(i, g)) })
	switch name {
	case "placebo":
		var err error
		s.from, err = s.others(seed)
		return err
	case "placebo_within":
		s.within = &seed
	}
	return nil
}

// Uncontrolled returns the source without Control.
func (s *Source) Uncontrolled() *Source {
	out := *s
	out.from, out.within, out.control = nil, nil, nil
	return &out
}

// others returns another query with a pool of the same size for each query: a random cycle through all queries of a size.
func (s *Source) others(seed int64) ([]int, error) {
	of := map[int][]int{}
	for i := range s.set.Len() {
		n := s.set.PoolSize(i)
		of[n] = append(of[n], i)
	}
	out := make([]int, s.set.Len())
	for n, cycle := range of {
		if len(cycle) < 2 {
			return nil, fmt.Errorf("control=placebo: query %d is the only one of the %s set with a pool of %d: want pools of one size "+
				"(data.pool_size)", s.ID(cycle[0]), s.Name(), n)
		}
		r := rng.New(seed, "placebo", n)
		r.Shuffle(len(cycle), func(i, k int) { cycle[i], cycle[k] = cycle[k], cycle[i] })
		for k, i := range cycle {
			out[i] = cycle[(k+1)%len(cycle)]
		}
	}
	return out, nil
}

// rewarding returns the query whose groups and table query q uses: q, or another query with control=placebo.
func (s *Source) rewarding(q int) int {
	if s.from == nil {
		return q
	}
	return s.from[q]
}

// rewards returns the recorded rewards of query q's group.
func (s *Source) rewards(q int) []float64 {
	out := list.Map(stat.Indices(s.set.NumCandidates(q)), func(j int) float64 { return s.set.Candidate(q, j).Reward })
	if s.within == nil || len(out) < 2 {
		return out
	}
	cycle := rng.New(*s.within, "placebo within", int(s.ID(q))).Perm(len(out))
	permuted := slices.Clone(out)
	for k, j := range cycle {
		permuted[j] = out[cycle[(k+1)%len(cycle)]]
	}
	return permuted
}
