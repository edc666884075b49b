package shapes

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"fulcrum/internal/rng"
)

// Record is one candidate of a recorded group, as an RL beam file holds it.
type Record struct {
	Positions   []int32 // [Shots] in the pool
	Method      string  // beam, retrieval, sample, random
	BeamRank    int     // 0 = best; -1 unless beam
	LogProb     float64 // of sampling it, nats; NaN unless sample
	Temperature float64 // of sampling it; NaN unless sample
	Answer      string  // what the reader says after these demonstrations
	Accuracy    float64 // its VQA accuracy
	Soft        float64 // the reward
}

// beamSearch returns the width best sets of shots positions that a beam search under Soft finds, best
// first. The reader ignores order, so beams differ as sets.
func (q *Query) beamSearch(shots, width int) []Beam {
	type step struct {
		beam, position int32
		soft           float64 // rounded: the last bit must not order beams
	}
	beams := []Beam{{}}
	for range shots {
		var steps []step
		set := make([]int32, len(beams[0].Positions)+1)
		for i, b := range beams {
			copy(set, b.Positions)
			for p := range int32(len(q.Pool)) {
				if set[len(set)-1] = p; !slices.Contains(b.Positions, p) {
					steps = append(steps, step{int32(i), p, roundTo(q.Soft(set), 9)})
				}
			}
		}
		slices.SortFunc(steps, func(a, b step) int {
			return cmp.Or(cmp.Compare(b.soft, a.soft), cmp.Compare(a.beam, b.beam), cmp.Compare(a.position, b.position))
		})
		var next []Beam
		seen := map[string]bool{}
		for _, s := range steps {
			set := append(slices.Clone(beams[s.beam].Positions), s.position)
			if key := SetKey(set); !seen[key] {
				seen[key] = true
				next = append(next, Beam{set, s.soft})
			}
			if len(next) == width {
				break
			}
		}
		beams = next
	}
	return beams
}

// SetKey is equal for equal sets.
func SetKey(positions []int32) string {
	s := slices.Sorted(slices.Values(positions))
	key := make([]byte, 0, 4*len(s))
	for _, p := range s {
		key = binary.LittleEndian.AppendUint32(key, uint32(p))
	}
	return string(key)
}

// record makes a query's group: its beams, two retrievals by cosine, four samples in proportion to
// exp(cosine / temperature), three random choices; equal sets once, under the first of these methods.
func (d *Data) record(q *Query, cos []float64) []Record {
	shots := d.Options.Shots
	r := rng.New(d.Options.Seed, "shapes records", int(q.Row))
	var out []Record
	seen := map[string]bool{}
	add := func(rec Record) {
		if key := SetKey(rec.Positions); !seen[key] {
			seen[key] = true
			rec.Answer, rec.Accuracy = d.Predict(q, rec.Positions)
			rec.Soft = roundTo(q.Soft(rec.Positions), 9)
			out = append(out, rec)
		}
	}
	none := math.NaN()
	for rank, b := range q.Beams {
		add(Record{Positions: b.Positions, Method: "beam", BeamRank: rank, LogProb: none, Temperature: none})
	}
	near := order(cos)
	add(Record{Positions: slices.Clone(near[:shots]), Method: "retrieval", BeamRank: -1, LogProb: none, Temperature: none})
	add(Record{Positions: append(slices.Clone(near[:shots-1]), near[shots]), Method: "retrieval", BeamRank: -1, LogProb: none,
		Temperature: none})
	for _, tau := range []float64{0.05, 0.05, 0.1, 0.1} {
		var set []int32
		logp := 0.0
		for range shots {
			weights, sum := make([]float64, len(cos)), 0.0
			for p := range cos {
				if !slices.Contains(set, int32(p)) {
					weights[p] = math.Exp((cos[p] - cos[near[0]]) / tau)
					sum += weights[p]
				}
			}
			at, left := near[0], r.Float64()*sum
			for p, w := range weights {
				if w > 0 {
					at = int32(p)
					if left -= w; left < 0 {
						break
					}
				}
			}
			set = append(set, at)
			logp += math.Log(weights[at] / sum)
		}
		add(Record{Positions: set, Method: "sample", BeamRank: -1, LogProb: roundTo(logp, 5), Temperature: tau})
	}
	for range 3 {
		var set []int32
		for len(set) < shots {
			if p := int32(r.IntN(len(cos))); !slices.Contains(set, p) {
				set = append(set, p)
			}
		}
		add(Record{Positions: set, Method: "random", BeamRank: -1, LogProb: none, Temperature: none})
	}
	return out
}
