package beamdata

import (
	"math"

	"fulcrum/rewardutil"
)

// withLevels returns the set with rewards of several levels (rewardutil.Combine): the reward as
// recorded or scored, coherence and diversity of the sequence over the embeddings, and the task's
// accuracy where it is known. Training sets only: validation and evaluation keep the plain reward.
func (s *Set) withLevels(opt rewardutil.RewardOptions) *Set {
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
func (s *Set) combine(opt rewardutil.RewardOptions, i int, positions []int32, reward, accuracy float64) float64 {
	l := rewardutil.Levels{Beam: reward, Task: accuracy}
	if opt.UsesSequence() {
		query := s.Table.Row(int(s.Row(i)))
		pool := s.Pool(i)
		examples := make([][]float32, len(positions))
		for k, p := range positions {
			examples[k] = s.Table.Row(int(pool[p]))
		}
		l.Coherence, l.Diversity = rewardutil.Coherence(query, examples), rewardutil.Diversity(examples)
	}
	return opt.Combine(l)
}

// recordedAccuracy is the task level of a recorded candidate, NaN where the file does not give it.
func recordedAccuracy(t rewardutil.Trajectory) float64 {
	if t.Has&rewardutil.AccScore == 0 {
		return math.NaN()
	}
	return t.AccScore
}

// levelScorer scores sampled choices by several levels.
type levelScorer struct {
	set   *Set
	inner Scorer
	opt   rewardutil.RewardOptions
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
