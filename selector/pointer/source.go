package pointer

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/beamdata"
	"fulcrum/internal/list"
	"fulcrum/selector"
)

// Source lets the policy answer the queries of a beamdata.Set.
type Source struct {
	set *beamdata.Set
	cos [][]float32 // [Q][K_i] cosine of query and candidate, filled on first use
	// shots is the length that recorded candidates end at by themselves: shorter ones get a Stop. 0 = none do.
	shots int
	// of Control: query i has the groups and the reward table of query from[i]; seed of the permutations inside groups
	from   []int
	within *int64
	// of Control: what becomes of the rewards of sampled groups; nil: nothing
	control selector.Control
	ask     Ask // nil: the set's scorer, if it has one
}

// Ask scores selections that no table holds: positions[k], in order of choice, of query queries[k]. accuracy may be nil.
type Ask func(queries []int, positions [][]int32) (rewards, accuracy []float64, err error)

// ScoreBy lets ask score the selections of a set without a scorer, those of a batch at once.
func (s *Source) ScoreBy(ask Ask) { s.ask = ask }

// EndRecorded makes recorded candidates of fewer than shots examples end with a scored Stop, for a policy that may stop.
func (s *Source) EndRecorded(shots int) { s.shots = shots }

func NewSource(set *beamdata.Set) *Source {
	return &Source{set: set, cos: make([][]float32, set.Len())}
}

func (s *Source) Set() *beamdata.Set { return s.set }
func (s *Source) Name() string       { return s.set.Name }
func (s *Source) Len() int           { return s.set.Len() }
func (s *Source) ID(i int) int64     { return s.set.IDs[i] }

// Recorded returns the recorded candidates of these queries [B, G, S], padded to the largest group. With EndRecorded
// there may be a step more.
func (s *Source) Recorded(queries []int) *selector.Batch {
	g := 1
	for _, q := range queries {
		g = max(g, s.set.NumCandidates(s.rewarding(q)))
	}
	t := max(s.set.Shots, 1)
	if t < s.shots {
		t++
	}
	b := selector.NewBatch(s, queries, g, t)
	for i, q := range queries {
		from := s.rewarding(q)
		for j, reward := range s.rewards(from) {
			steps := list.Convert[int64](s.set.Candidate(from, j).Positions)
			if len(steps) < min(s.shots, len(s.set.Pool(q))) {
				steps = append(steps, Stop)
			}
			b.Set(i, j, steps, reward)
		}
	}
	return b
}

// CanScore reports whether any selection has a reward.
func (s *Source) CanScore() bool { return s.set.Scorer != nil || s.ask != nil }

// Score fills b.Rewards from the set's scorer, as Control has them.
func (s *Source) Score(b *selector.Batch) (err error) {
	if s.ask != nil {
		_, err = s.askAll(b)
	} else {
		err = s.each(b, func(at, q int, positions []int32) { b.Rewards[at] = beamdata.Reward(s.set.Scorer, q, positions) })
	}
	if err == nil && s.control != nil {
		s.control(b)
	}
	return err
}

// Accuracy fills b.Rewards and returns the task accuracy of every valid candidate [B*G], or nil when
// the scorer does not know it.
func (s *Source) Accuracy(b *selector.Batch) ([]float64, error) {
	if s.ask != nil {
		return s.askAll(b)
	}
	known := false
	accuracy := make([]float64, len(b.Valid))
	err := s.each(b, func(at, q int, positions []int32) {
		b.Rewards[at], accuracy[at] = s.set.Scorer.Score(q, positions)
		known = known || !math.IsNaN(accuracy[at])
	})
	if err != nil || !known {
		return nil, err
	}
	return accuracy, nil
}

// askAll is Accuracy by ask.
func (s *Source) askAll(b *selector.Batch) ([]float64, error) {
	var at, queries []int
	var positions [][]int32
	err := s.each(b, func(k, q int, chosen []int32) {
		at, queries, positions = append(at, k), append(queries, q), append(positions, slices.Clone(chosen))
	})
	if err != nil {
		return nil, err
	}
	rewards, known, err := s.ask(queries, positions)
	if err != nil {
		return nil, err
	}
	var accuracy []float64
	if known != nil {
		accuracy = make([]float64, len(b.Valid))
	}
	for i, k := range at {
		if b.Rewards[k] = rewards[i]; known != nil {
			accuracy[k] = known[i]
		}
	}
	return accuracy, nil
}

// each calls f for every valid candidate with its index in [B*G], the query whose rewards it gets and its positions.
func (s *Source) each(b *selector.Batch, f func(at, q int, positions []int32)) error {
	if !s.CanScore() {
		return fmt.Errorf("%s: no reader or reward function can score new selections (data.reader)", s.set.Name)
	}
	for i, q := range b.Queries {
		for g, at := range b.Candidates(i) {
			f(at, s.rewarding(q), list.Convert[int32](b.Chosen(i, g)))
		}
	}
	return nil
}

// cosines returns cos(E_query, E_candidate) for the pool of query q, computed once.
func (s *Source) cosines(q int) []float32 {
	if s.cos[q] == nil {
		query := s.set.Table.Row(int(s.set.Row(q)))
		qn := norm(query)
		pool := s.set.Pool(q)
		out := make([]float32, len(pool))
		for j, row := range pool {
			c := s.set.Table.Row(int(row))
			out[j] = float32(dot(query, c) / math.Max(qn*norm(c), 1e-24))
		}
		s.cos[q] = out
	}
	return s.cos[q]
}

func dot(a, b []float32) float64 {
	var s0, s1, s2, s3 float64 // four sums: the additions do not wait for each other
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += float64(a[i]) * float64(b[i])
		s1 += float64(a[i+1]) * float64(b[i+1])
		s2 += float64(a[i+2]) * float64(b[i+2])
		s3 += float64(a[i+3]) * float64(b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i]) * float64(b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

func norm(a []float32) float64 { return math.Sqrt(dot(a, a)) }
