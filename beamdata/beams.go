package beamdata

import (
	"cmp"
	"fulcrum/beamdata/shapes"
	"slices"
)

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
