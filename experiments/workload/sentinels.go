package workload

import (
	"fulcrum/beamdata"
	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/phases/preflight"
	"fulcrum/rewardutil/recorded"
)

// looked is how many queries of a set the checks of embeddings and inputs read at most.
const looked = 500

// similarity returns what the similarity of examples is worth on some queries of a set. Without a reader its recorded candidates say so.
func (w *Pointer) similarity(set *beamdata.Set) preflight.Similarity {
	set = set.Subset(drawn(looked, set.Len(), w.job.Config.Seed, "similarity"))
	var near, random recorded.Scores
	for q := range set.Len() {
		var rewards, nearness []float64
		for g := range set.NumCandidates(q) {
			c := set.Candidate(q, g)
			rewards, nearness = append(rewards, c.Reward), append(nearness, set.Nearness(q, c.Positions))
		}
		if len(rewards) > 1 {
			near.Follow(set.IDs[q], nearness, rewards)
			random.Follow(set.IDs[q], make([]float64, len(rewards)), rewards)
		}
	}
	out := preflight.Similarity{Name: set.Name, Pairs: near.Pairs, Similar: near.Reward, Random: random.Reward}
	if set.Scorer != nil {
		shots := w.shots()
		out.Scored = true
		out.Similar = beamdata.ScoreAll(set, beamdata.Similarity(set, shots)).Reward
		out.Random = beamdata.Random(set, w.job.Config.Data.SplitSeed, 20, shots).Reward
	}
	return out
}

// describer is a policy that reads numbers of each candidate: their names, and the values [K] of each for the pool of query q.
type describer interface {
	Described(set *beamdata.Set, q int) (names []string, values [][]float64, err error)
}

// alone compares every number that the policy reads of a candidate, similarity first, with what single candidates earn.
func alone(report *preflight.Report, policy describer, set *beamdata.Set, seed int64) error {
	const queries, candidates = 64, 32 // thousands of pairs
	if set.Scorer == nil {
		return nil
	}
	var inputs []preflight.Input
	for _, q := range drawn(queries, set.Len(), seed, "inputs") {
		pool := rng.New(seed, "inputs", q).Perm(set.PoolSize(q))
		pool = pool[:min(candidates, len(pool))]
		nearness := make([]float64, set.PoolSize(q))
		var rewards []float64
		for _, p := range pool {
			nearness[p] = set.Nearness(q, []int32{int32(p)})
			reward, _ := set.Scorer.Score(q, []int32{int32(p)})
			rewards = append(rewards, reward)
		}
		more, columns, err := policy.Described(set, q)
		if err != nil {
			return err
		}
		names, columns := append([]string{"similarity"}, more...), append([][]float64{nearness}, columns...)
		if inputs == nil {
			inputs = list.Map(names, func(name string) preflight.Input { return preflight.Input{Name: name} })
		}
		for i, column := range columns {
			inputs[i].Add(list.Map(pool, func(p int) float64 { return column[p] }), rewards)
		}
	}
	for _, in := range inputs {
		report.Alone(in)
	}
	return nil
}
