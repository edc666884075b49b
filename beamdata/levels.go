package beamdata

import (
	"math"

	"fulcrum/rewardutil/recorded"
)

// withLevels returns the set with rewards of several levels (rewardutil.Combine): the reward as
// recorded or scored, coherence and diversity of the sequence over the embeddings, and the task's
// accuracy where it is known. Training sets only: validation and evaluation keep the plain reward.
func (s *Set) withLevels(opt recorded.Options) *Set {
	plain := opt.BeamWeight == 1 && opt.TaskWeight == 0 && !opt.UsesSequence()
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
		examples := make([][]float32, len(positions))
		for k, p := range positions {
			examples[k] = s.Table.Row(int(pool[p]))
		}
		l.Coherence, l.Diversity = recorded.Coherence(query, examples), recorded.Diversity(examples)
	}
	return opt.Combine(l)
}

// recordedAccuracy is the task level of a recorded candidate, NaN where the file does not give it.
func recordedAccuracy(t recorded.Trajectory) float64 {
	if t.Has&recorded.AccScore == 0 {
		return math.NaN()
	}
	return t.AccScore
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
	if l.opt.TaskWeight != 0 {
		reward, _ := l.Score(i, positions)
		return reward
	}
	return l.set.combine(l.opt, i, positions, Reward(l.inner, i, positions), math.NaN())
}
