package icl

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
)

// trajectory is a scored sequence of an RL record, under the names that the Python reference reads.
type trajectory struct {
	Pointer    []int32  `json:"pointer"`     // global ids
	Positions  []int    `json:"pointer_pos"` // in candidate_pool_ids
	Method     string   `json:"gen_method"`
	Rank       int      `json:"beam_rank"`
	Score      float64  `json:"beam_score"`
	Prob       *float64 `json:"vqa_gt_prob,omitempty"`
	Said       *string  `json:"vqa_pred_answer,omitempty"`
	Accuracy   *float64 `json:"vqa_acc_score,omitempty"`
	Correct    *int     `json:"vqa_correct,omitempty"`
	Evaluation string   `json:"vqa_eval_mode,omitempty"`
}

// Trajectory returns a beam as an RL record holds it. rank counts from 0.
func (s *Search) Trajectory(b Beam, pool []int32, rank int) any {
	t := trajectory{Pointer: b.Rows, Method: "beam", Rank: rank, Score: b.Score}
	t.Positions = list.Map(b.Rows, func(row int32) int { return slices.Index(pool, row) })
	switch s.Score {
	case "vqa":
		correct := 0
		if b.Score > 0 {
			correct = 1
		}
		t.Said, t.Accuracy, t.Correct = &b.Said, &b.Score, &correct
	case "cider":
		t.Said = &b.Said
	default:
		t.Prob = &b.Prob
	}
	return t
}

// WriteBeams writes the legacy file: for each query, by its row, the sequences with the query's own row last, and their scores.
func WriteBeams(path string, meta map[string]any, queries []int, beams [][]Beam) error {
	type legacy struct {
		IDs    [][]int   `json:"id_list"`
		Scores []float64 `json:"score_list"`
	}
	return writeByQuery(path, meta, queries, func(i int) any {
		var out legacy
		for _, b := range beams[i] {
			ids := list.Map(b.Rows, func(row int32) int { return int(row) })
			out.IDs, out.Scores = append(out.IDs, append(ids, queries[i])), append(out.Scores, b.Score)
		}
		return out
	})
}

// WriteRecords writes RL records: each query's pool and scored sequences, none where it is only to be answered.
func WriteRecords(path string, meta map[string]any, queries []int, pools [][]int32, beams [][]Beam,
	trajectory func(b Beam, pool []int32, rank int) any) error {
	type rl struct {
		Pool         []int32 `json:"candidate_pool_ids"`
		Trajectories []any   `json:"pointer_candidates,omitempty"`
	}
	return writeByQuery(path, meta, queries, func(i int) any {
		out := rl{Pool: pools[i]}
		for rank, b := range beams[i] {
			out.Trajectories = append(out.Trajectories, trajectory(b, pools[i], rank))
		}
		return out
	})
}

// writeByQuery writes an object of queries, a line each, complete or not at all.
func writeByQuery(path string, meta map[string]any, queries []int, value func(i int) any) error {
	return atomicfile.Stream(path, func(w *bufio.Writer) error {
		line := func(end, key string, v any) error {
			text, err := json.Marshal(v)
			if err == nil {
				_, err = fmt.Fprintf(w, "%s%q: %s", end, key, text)
			}
			return err
		}
		err := line("{", "_meta", meta)
		for i, q := range queries {
			err = cmp.Or(err, line(",\n", fmt.Sprint(q), value(i)))
		}
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
		w.WriteString("}\n") // a failure comes with the end of the file
		return nil
	})
}
