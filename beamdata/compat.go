package beamdata

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
)

// This file reads and splits beam files exactly as the Python reference does.

// addCompatRL takes a query of an RL file exactly as the Python reference does (parity §1.5), wrong readings included:
// pointer_pos counts as global ids and wins over pointer; local pointers are mapped like ids when the first trajectory
// is not local; local labels are not checked; the pool is cut to its first 64 ids.
func (r *fileReader) addCompatRL(rec *record) error {
	if len(rec.trajectories) == 0 {
		r.lose("query_without_trajectories", rec)
		return nil
	}
	firstIsLocal := rec.trajectories[0].global.present
	var labels [][]int64
	first := len(r.out.reward)
	for i := range rec.trajectories {
		t := &rec.trajectories[i]
		if r.skipTrajectory(rec, t) {
			continue
		}
		picks, ok := compatPicks(rec, t)
		if !ok {
			return fmt.Errorf("pointer_candidates[%d] has no pointer or pointer_pos", i)
		}
		if err := r.checkShots(len(picks)); err != nil {
			return fmt.Errorf("pointer_candidates[%d] %w", i, err)
		}
		if t.pointer.present && !slices.Equal(picks, rec.ints(t.pointer)) { // defect D7 makes other examples of these
			r.count("pointers_for_which_the_reference_reads_pointer_pos_as_ids", 1, rec.place())
		}
		reward, err := r.reward(t)
		if err != nil {
			return fmt.Errorf("pointer_candidates[%d]: %w", i, err)
		}
		labels = append(labels, picks)
		r.out.reward = append(r.out.reward, reward)
		r.out.scores = append(r.out.scores, t.scores)
		r.out.method = append(r.out.method, t.method)
	}
	reason := ""
	switch rewards := r.out.reward[first:]; {
	case len(rewards) == 0:
		reason = "query_without_trajectories"
	case r.opt.RequirePositiveQuery && !r.opt.QueriesOnly && !slices.ContainsFunc(rewards, func(v float64) bool { return v >= 1 }):
		reason = "query_without_positive_trajectory"
	}
	if reason != "" {
		r.count(reason, 1, rec.place())
		r.out.reward, r.out.scores, r.out.method = r.out.reward[:first], r.out.scores[:first], r.out.method[:first]
		return nil
	}
	local := rec.hasPool && firstIsLocal
	pool := rec.ints(rec.pool)
	if !local {
		pool = slices.Concat(labels...)
		slices.Sort(pool)
		pool = slices.Compact(pool)
	}
	if n := r.opt.PoolSize; n != nil {
		pool = pool[:min(len(pool), *n)]
	}
	own := make([]int32, len(pool))
	for k, id := range pool {
		if err := r.checkID(id); err != nil {
			return fmt.Errorf("pool[%d] %w", k, err)
		}
		own[k] = int32(id)
	}
	for i, picks := range labels {
		for k, x := range picks {
			at := x
			if !local {
				at = int64(slices.Index(own, int32(x)))
			}
			if at < 0 || at >= int64(len(own)) {
				return fmt.Errorf("pointer_candidates: kept trajectory %d, pick %d = %d is outside the pool of %d", i, k, x, len(own))
			}
			r.out.picks = append(r.out.picks, int32(at))
		}
	}
	r.out.local = true
	r.out.pools = append(r.out.pools, own)
	r.endQuery(rec.id)
	return nil
}

// compatPicks returns the ids that the reference reads; false where it finds none.
func compatPicks(rec *record, t *trajectory) ([]int64, bool) {
	switch {
	case t.global.present && t.pointer.present:
		return rec.ints(t.pointer), true
	case t.pos.present:
		return rec.ints(t.pos), true
	}
	return rec.ints(t.pointer), t.pointer.present
}

// compatVal returns the validation queries of the reference's split, which counts every entry of the file whose key is a
// number; those that are dropped later leave their part smaller. Without a file (a reader alone) ids are the keys.
func compatVal(keys []string, ids []int64, ratio float64) (map[int64]bool, error) {
	if keys == nil {
		keys = list.Map(ids, func(id int64) string { return strconv.FormatInt(id, 10) })
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, ok := pythonInt(key)
		return !ok // no query: it was counted when the file was read
	})
	val, err := compatSplit(keys, ratio)
	out := map[int64]bool{}
	for _, key := range val {
		if id, err := strconv.ParseInt(key, 10, 64); err == nil {
			out[id] = true
		}
	}
	return out, err
}

// compatSplit returns the keys that validate in the Python reference's split (parity §1.7), in the file's order: of numeric keys
// sorted by value the first int(n·ratio) train, the rest and every non-numeric key validate. Numeric are keys of digits
// once - and _ are removed; a key that then is no integer is the reference's ValueError.
func compatSplit(keys []string, ratio float64) (val []string, err error) {
	type numbered struct {
		key   string
		value *big.Int
	}
	var numeric []numbered
	for _, key := range keys {
		digits := strings.NewReplacer("-", "", "_", "").Replace(key)
		if digits == "" || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		value, ok := pythonInt(key)
		if !ok {
			return nil, fmt.Errorf("key %q is not an integer", key)
		}
		numeric = append(numeric, numbered{key, value})
	}
	slices.SortStableFunc(numeric, func(a, b numbered) int { return a.value.Cmp(b.value) })
	isTrain := list.SetBy(numeric[:int(float64(len(numeric))*ratio)], func(n numbered) string { return n.key })
	return list.Filter(keys, func(key string) bool { return !isTrain[key] }), nil
}

// pythonInt is int(key): single underscores between digits are allowed.
func pythonInt(key string) (*big.Int, bool) {
	digits := strings.TrimPrefix(key, "-")
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") || strings.Contains(digits, "-") {
		return nil, false
	}
	return new(big.Int).SetString(strings.ReplaceAll(key, "_", ""), 10)
}
