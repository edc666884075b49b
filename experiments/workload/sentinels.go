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
		out.Similar = beamdata.ScoreAll(set, beamdata.Similarity(set, shots)).Reward
		out.Random = beamdata.Random(set, w.job.Config.Data.SplitSeed, 20, shots).Reward
	}
	return out
}

// describer is a policy that reads numbers of each candidate: their names, and their values [K, len(names)] for the pool of query q.
type describer interface {
	Described(set *beamdata.Set, q int) (names []string, values []float64)
}

// alone holds every number that the selector reads of a candidate, similarity first, against what single candidates earn.
func (w *Pointer) alone(report *preflight.Report, set *beamdata.Set) {
	const queries, candidates = 64, 32 // thousands of pairs
	if set.Scorer == nil {
		return
	}
	var inputs []preflight.Input
	for _, q := range drawn(queries, set.Len(), w.job.Config.Seed, "inputs") {
		pool := rng.New(w.job.Config.Seed, "inputs", q).Perm(set.PoolSize(q))
		pool = pool[:min(candidates, len(pool))]
		names, values := []string{"similarity"}, make([][]float64, 1)
		var rewards []float64
		for _, p := range pool {
			values[0] = append(values[0], set.Nearness(q, []int32{int32(p)}))
			reward, _ := set.Scorer.Score(q, []int32{int32(p)})
			rewards = append(rewards, reward)
		}
		if d, ok := any(w.policy).(describer); ok {
			more, x := d.Described(set, q)
			for i, name := range more {
				names = append(names, name)
				values = append(values, list.Map(pool, func(p int) float64 { return x[p*len(more)+i] }))
			}
		}
		if inputs == nil {
			inputs = list.Map(names, func(name string) preflight.Input { return preflight.Input{Name: name} })
		}
		for i, x := range values {
			inputs[i].Add(x, rewards)
		}
	}
	for _, in := range inputs {
		report.Alone(in)
	}
}
