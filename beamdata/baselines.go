package beamdata

import (
	"cmp"
	"math"
	"slices"

	"fulcrum/beamdata/shapes"
	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/rewardutil/recorded"
)

// Selections holds the choices and rewards of a selection rule, query by query.
type Selections struct {
	Positions [][]int32 // [Q][S] in order of choice; nil where a rule draws several times (Random)
	Reward    []float64 // [Q]
	Accuracy  []float64 // [Q]; NaN where unknown
}

func (s Selections) Mean() float64 { return stat.Mean(s.Reward) }

func (s Selections) MeanAccuracy() float64 { return stat.Mean(s.Accuracy) }

// ScoreAll scores one selection per query. The set must have a scorer.
func ScoreAll(s *Set, positions [][]int32) Selections {
	out := Selections{Positions: positions, Reward: make([]float64, s.Len()), Accuracy: make([]float64, s.Len())}
	for i := range s.Len() {
		out.Reward[i], out.Accuracy[i] = s.Scorer.Score(i, positions[i])
	}
	return out
}

// Random scores uniform choices of shots candidates without replacement: the mean of draws choices per
// query. The draws of a query depend on seed and its id only.
func Random(s *Set, seed int64, draws, shots int) Selections {
	out := Selections{Reward: make([]float64, s.Len()), Accuracy: make([]float64, s.Len())}
	for i := range s.Len() {
		r := rng.New(seed, "baseline random", int(s.IDs[i]))
		n := s.PoolSize(i)
		for range draws {
			reward, accuracy := s.Scorer.Score(i, draw(r.IntN, n, min(shots, n)))
			out.Reward[i] += reward / float64(draws)
			out.Accuracy[i] += accuracy / float64(draws)
		}
	}
	return out
}

// draw picks k of n without replacement (Floyd 1987).
func draw(intn func(int) int, n, k int) []int32 {
	picks := make([]int32, 0, k)
	for j := n - k; j < n; j++ {
		x := int32(intn(j + 1))
		if slices.Contains(picks, x) {
			x = int32(j)
		}
		picks = append(picks, x)
	}
	return picks
}

// Similarity returns the shots candidates of highest cosine with the query, best first; ties go to the
// earlier position, or by TieOrder where the whole pool ties.
func Similarity(s *Set, shots int) [][]int32 {
	return list.Map(stat.Indices(s.Len()), func(i int) []int32 { return mostSimilar(s, i, shots) })
}

func mostSimilar(s *Set, i, shots int) []int32 {
	query := s.Table.Row(int(s.Row(i)))
	pool := s.Pool(i)
	cos := make([]float64, len(pool))
	order := make([]int32, len(pool))
	for k, row := range pool {
		cos[k], order[k] = recorded.Cosine(query, s.Table.Row(int(row))), int32(k)
	}
	if len(cos) > 1 && slices.Min(cos) == slices.Max(cos) {
		for k, p := range s.TieOrder(i) {
			order[k] = int32(p)
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(cos[b], cos[a]) })
	return order[:min(shots, len(order))]
}

// Nearness returns the mean cosine of query i with a selection from its pool.
func (s *Set) Nearness(i int, positions []int32) float64 {
	query, pool := s.Table.Row(int(s.Row(i))), s.Pool(i)
	sum := list.Sum(positions, func(p int32) float64 { return recorded.Cosine(query, s.Table.Row(int(pool[p]))) })
	return sum / float64(max(len(positions), 1))
}

// BestBeam returns the recorded beam of highest reward of each query, the first among equals: what sft imitates. A
// gen_method of the file's own counts as a beam. A query without a recorded beam keeps its choice in otherwise. It
// returns nil where no query has one, or where beams have another number of examples than shots.
func BestBeam(s *Set, shots int, otherwise [][]int32) [][]int32 {
	var out [][]int32 // nil until a beam is found
	for i := range otherwise {
		best := math.Inf(-1)
		for g := range s.NumCandidates(i) {
			c := s.Candidate(i, g)
			if slices.Contains([]string{"sample", "retrieval", "random"}, c.Method) {
				continue
			}
			if len(c.Positions) != shots {
				return nil
			}
			if c.Reward > best {
				if out == nil {
					out = slices.Clone(otherwise)
				}
				best, out[i] = c.Reward, c.Positions
			}
		}
	}
	return out
}

// Oracle returns the best choice under the set's scorer: exhaustive for up to 2 shots (all pairs of the
// pool), a beam search of width 5 beyond, which may miss the best.
func Oracle(s *Set, shots int) [][]int32 {
	return list.Map(stat.Indices(s.Len()), func(i int) []int32 {
		if shots == 2 && s.PoolSize(i) >= 2 {
			return bestPair(s, i)
		}
		return BeamSearch(s, i, 5, shots)[0].Positions
	})
}

// bestPair tries all pairs; ties go to the first in order of positions.
func bestPair(s *Set, i int) []int32 {
	best, bestReward := []int32{0, 1}, math.Inf(-1)
	pair := make([]int32, 2)
	n := int32(s.PoolSize(i))
	for a := int32(0); a < n; a++ {
		for b := a + 1; b < n; b++ {
			pair[0], pair[1] = a, b
			if r := Reward(s.Scorer, i, pair); r > bestReward {
				bestReward = r
				copy(best, pair)
			}
		}
	}
	return best
}

// Beam is one result of a beam search: a choice and its reward.
type Beam struct {
	Positions []int32
	Reward    float64
}

// BeamSearch searches the pool of query i under the set's scorer: in each of shots steps every beam is
// extended by every candidate it lacks, equal sets are kept once (the first found), and the best width
// remain; ties go to the smaller positions. Best first. It is how the beams of the okvqa files were made.
func BeamSearch(s *Set, i, width, shots int) []Beam {
	n := s.PoolSize(i)
	beams := []Beam{{}}
	for range min(shots, n) {
		var next []Beam
		seen := map[string]bool{}
		for _, b := range beams {
			for p := range int32(n) {
				if slices.Contains(b.Positions, p) {
					continue
				}
				choice := append(slices.Clone(b.Positions), p)
				if key := shapes.SetKey(choice); !seen[key] {
					seen[key] = true
					next = append(next, Beam{choice, Reward(s.Scorer, i, choice)})
				}
			}
		}
		slices.SortStableFunc(next, func(a, b Beam) int {
			return cmp.Or(cmp.Compare(b.Reward, a.Reward), slices.Compare(a.Positions, b.Positions))
		})
		beams = next[:min(width, len(next))]
	}
	return beams
}
