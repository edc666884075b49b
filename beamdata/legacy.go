package beamdata

import (
	"fmt"
	"slices"
)

// addLegacy takes a query of a legacy file: {"id_list": [[s1..sS, query id], …], "score_list": [s…]}
// (parity §1.2). The reward of a beam is its score. Every beam must end with its query's id.
func (r *fileReader) addLegacy(rec *record) error {
	if !rec.hasBeams || !rec.hasScores && !r.opt.QueriesOnly {
		return fmt.Errorf("want id_list and score_list, as the first query of the file has")
	}
	if len(rec.beams) != len(rec.scores) && !r.opt.QueriesOnly {
		return fmt.Errorf("id_list holds %d beams, score_list %d scores", len(rec.beams), len(rec.scores))
	}
	if len(rec.beams) == 0 {
		r.lose("query_without_beams", rec)
		return nil
	}
	for b, list := range rec.beams {
		beam := rec.ints(list)
		if len(beam) < 2 {
			return fmt.Errorf("id_list[%d] has %d ids, want the picks and the query id", b, len(beam))
		}
		picks, last := beam[:len(beam)-1], beam[len(beam)-1]
		if last != rec.id && !r.opt.Compat {
			return fmt.Errorf("id_list[%d] ends with %d, want the query id %d: a beam is its picks and then the id of its query", b, last,
				rec.id)
		}
		if err := r.checkShots(len(picks)); err != nil {
			return fmt.Errorf("id_list[%d] %w", b, err)
		}
		for k, id := range picks {
			if err := r.checkID(id); err != nil {
				return fmt.Errorf("id_list[%d][%d] %w", b, k, err)
			}
			if id == rec.id && !r.opt.Compat {
				return fmt.Errorf("id_list[%d][%d] is the query itself: its own answer would be its demonstration", b, k)
			}
			r.out.picks = append(r.out.picks, int32(id))
		}
		if id, twice := repeated(picks); twice && !r.opt.Compat {
			return fmt.Errorf("id_list[%d] picks %d twice", b, id)
		}
		score := 0.0
		if !r.opt.QueriesOnly {
			score = rec.scores[b]
		}
		r.out.reward = append(r.out.reward, score)
	}
	r.endQuery(rec.id)
	return nil
}

// gathered returns the pool of a legacy file: the sorted ids of all its beams, training and validation
// alike (parity §1.6).
func (f *beamFile) gathered() []int32 {
	pool := slices.Clone(f.picks)
	slices.Sort(pool)
	return slices.Clip(slices.Compact(pool))
}
