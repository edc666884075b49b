package beamdata

import (
	"fmt"

	"fulcrum/rewardutil/recorded"
)

// Query is one query of a set made in memory.
type Query struct {
	ID         int64                 // global id = embedding row
	Pool       []int32               // [K] global rows of the candidates
	Candidates [][]int32             // recorded selections: [G][S] positions in Pool
	Rewards    []float64             // [G]
	Methods    []string              // [G] as Candidate.Method; nil = all beam
	Scores     []recorded.Trajectory // [G] recorded scores; nil = the rewards are those of beams
}

// NewSet returns a set over table from queries made in memory. Every recorded selection has shots positions. scorer may
// be nil.
func NewSet(name string, table *Table, shots int, queries []Query, scorer Scorer) (*Set, error) {
	st := &store{shots: shots, start: []int64{0}, names: knownMethods()}
	for _, q := range queries {
		st.ids = append(st.ids, q.ID)
		st.pools = append(st.pools, q.Pool)
		if q.ID < 0 || q.ID >= int64(table.Rows) {
			return nil, fmt.Errorf("%s: query %d: no such row in a table of %d", name, q.ID, table.Rows)
		}
		for _, row := range q.Pool {
			if row < 0 || int(row) >= table.Rows || int64(row) == q.ID {
				return nil, fmt.Errorf("%s: query %d: pool row %d is no other row of a table of %d", name, q.ID, row, table.Rows)
			}
		}
		for g, c := range q.Candidates {
			if len(c) != shots {
				return nil, fmt.Errorf("%s: query %d: candidate %d has %d examples, want %d", name, q.ID, g, len(c), shots)
			}
			for _, p := range c {
				if p < 0 || int(p) >= len(q.Pool) {
					return nil, fmt.Errorf("%s: query %d: candidate %d points at %d, outside a pool of %d", name, q.ID, g, p, len(q.Pool))
				}
			}
			method := uint8(1)
			if q.Methods != nil {
				method = st.names.index([]byte(q.Methods[g]))
			}
			st.positions = append(st.positions, c...)
			st.rewards = append(st.rewards, q.Rewards[g])
			st.methods = append(st.methods, method)
			t := recorded.Trajectory{}
			if q.Scores != nil {
				t = q.Scores[g]
			} else {
				t.Set(recorded.BeamScore, q.Rewards[g])
			}
			st.scores = append(st.scores, t)
		}
		st.start = append(st.start, int64(len(st.rewards)))
	}
	s := newSet(name, table, st)
	s.Scorer = scorer
	return s, nil
}
