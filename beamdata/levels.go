package beamdata

import (
	"fmt"
	"math"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/rewardutil/recorded"
)

// withLevels returns the set with rewards of several levels (rewardutil.Combine): the recorded or scored
// reward, coherence and diversity of the sequence over the embeddings, and the task's accuracy where known.
// It is for training sets only: validation and evaluation keep the plain reward.
func (s *Set) withLevels(opt recorded.Options) *Set {
	plain := opt.Weight(recorded.BeamLevel) == 1 && opt.Weight(recorded.TaskLevel) == 0 && !opt.UsesSequence()
	if s == nil || plain {
		return s
	}
	out := *s
	out.levels = &opt
	if s.Scorer != nil {
		out.Scorer = levelScorer{&out, s.Scorer, opt}
	}
	return &out
}

// combine returns the reward of several levels for a choice of query i.
func (s *Set) combine(opt recorded.Options, i int, positions []int32, reward, accuracy float64) float64 {
	l := recorded.Levels{Beam: reward, Task: accuracy}
	if opt.UsesSequence() {
		query := s.Table.Row(int(s.Row(i)))
		pool := s.Pool(i)
		examples := list.Map(positions, func(p int32) []float32 { return s.Table.Row(int(pool[p])) })
		l.Coherence, l.Diversity = recorded.Coherence(query, examples), recorded.Diversity(examples)
	}
	return opt.Combine(l)
}

// taskLevel returns the task level of a recorded candidate of query i, from the file or else from the scorer; NaN if neither has
// it.
func (s *Set) taskLevel(i int, c Candidate) float64 {
	switch {
	case c.Has&recorded.AccScore != 0:
		return c.AccScore
	case s.Scorer == nil:
		return math.NaN()
	}
	_, accuracy := s.Scorer.Score(i, c.Positions)
	return accuracy
}

// countTaskLevels counts the recorded candidates without a task level whose groups have one, and the queries without any: the
// former lose against the others of their group by data.reward.levels.task, and to the latter it adds nothing.
func (b *Bundle) countTaskLevels(s *Set) {
	for i := range s.Len() {
		n := s.NumCandidates(i)
		unknown := list.Count(stat.Indices(n), func(g int) bool { return math.IsNaN(s.taskLevel(i, s.recorded(i, g))) })
		switch {
		case unknown == 0:
		case unknown < n:
			b.skip("candidate_without_task_level", unknown, s.IDs[i])
		default:
			b.skip("query_without_task_level", 1, s.IDs[i])
		}
	}
}

// skip counts an unused part of a query and keeps the place of the first.
func (b *Bundle) skip(reason string, n int, id int64) {
	if b.Counts[reason] == 0 {
		b.Skipped[reason] = fmt.Sprintf("query %d", id)
	}
	b.Counts[reason] += n
}

// levelScorer scores sampled choices by several levels.
type levelScorer struct {
	set   *Set
	inner Scorer
	opt   recorded.Options
}

func (l levelScorer) Score(i int, positions []int32) (float64, float64) {
	reward, accuracy := l.inner.Score(i, positions)
	return l.set.combine(l.opt, i, positions, reward, accuracy), accuracy
}

func (l levelScorer) Reward(i int, positions []int32) float64 {
	if l.opt.Weight(recorded.TaskLevel) != 0 {
		reward, _ := l.Score(i, positions)
		return reward
	}
	return l.set.combine(l.opt, i, positions, Reward(l.inner, i, positions), math.NaN())
}
