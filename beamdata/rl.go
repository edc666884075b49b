package beamdata

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/rewardutil/recorded"
)

// addRL takes a query of an RL file. candidate_pool_ids is the pool, whatever the trajectories name; pointer holds
// global ids unless pointer_global is present, then it is local; pointer_pos holds positions in candidate_pool_ids,
// never ids. A trajectory whose fields disagree is refused. Without candidate_pool_ids the pool is the sorted set of
// the ids that the query's kept trajectories name. The query itself is left out of its pool.
func (r *fileReader) addRL(rec *record) error {
	if !rec.hasPool && !rec.hasTrajectories {
		return fmt.Errorf("neither pointer_candidates nor candidate_pool_ids, as the first query of the file has")
	}
	pool := rec.ints(rec.pool)
	clear(r.pos)
	for k, id := range pool {
		if err := r.checkID(id); err != nil {
			return fmt.Errorf("candidate_pool_ids[%d] %w", k, err)
		}
		if at, dup := r.pos[id]; dup {
			return fmt.Errorf("candidate_pool_ids[%d] = %d is there already, at %d", k, id, at)
		}
		r.pos[id] = int32(k)
	}
	if r.opt.QueriesOnly && rec.hasPool {
		return r.addPool(rec, pool)
	}
	first, before := len(r.out.picks), len(r.out.reward)
	positive := false
	for i := range rec.trajectories {
		t := &rec.trajectories[i]
		if r.skipTrajectory(rec, t) {
			continue
		}
		picks, err := r.picks(rec, t, pool)
		if err != nil {
			return fmt.Errorf("pointer_candidates[%d]%w", i, err)
		}
		reward, err := r.reward(t)
		if err != nil {
			return fmt.Errorf("pointer_candidates[%d]: %w", i, err)
		}
		r.out.picks = append(r.out.picks, list.Convert[int32](picks)...)
		r.out.reward = append(r.out.reward, reward)
		r.out.scores = append(r.out.scores, t.scores)
		r.out.method = append(r.out.method, t.method)
		positive = positive || t.scores.Correct > 0 || t.scores.Has&recorded.Correct == 0 && t.scores.AccScore > 0
	}
	switch {
	case len(r.out.reward) == before:
		r.lose("query_without_trajectories", rec)
		return nil
	case r.opt.RequirePositiveQuery && !positive:
		r.out.picks = r.out.picks[:first]
		r.out.reward, r.out.scores, r.out.method = r.out.reward[:before], r.out.scores[:before], r.out.method[:before]
		r.count("query_without_positive_trajectory", 1, rec.place())
		return nil
	}
	if !rec.hasPool {
		named := slices.Clone(r.out.picks[first:])
		slices.Sort(named)
		r.out.pools = append(r.out.pools, slices.Clip(slices.Compact(named)))
		r.endQuery(rec.id)
		return nil
	}
	return r.addPool(rec, pool)
}

// addPool closes a query with its own pool.
func (r *fileReader) addPool(rec *record, pool []int64) error {
	own := make([]int32, 0, len(pool))
	for k, id := range pool {
		if id == rec.id && !r.opt.Compat { // the reference leaves it in (defect D19)
			r.count("query_dropped_from_its_pool", 1, rec.place())
			if r.out.left == nil {
				r.out.left = map[int64]int32{}
			}
			r.out.left[id] = int32(k)
			continue
		}
		own = append(own, int32(id))
	}
	if len(own) == 0 {
		return fmt.Errorf("candidate_pool_ids has no candidate")
	}
	r.out.pools = append(r.out.pools, own)
	r.endQuery(rec.id)
	return nil
}

// skipTrajectory counts and drops what has no trustworthy score.
func (r *fileReader) skipTrajectory(rec *record, t *trajectory) bool {
	if r.opt.QueriesOnly && !r.opt.Compat {
		return false
	}
	switch {
	case t.failed:
		r.count("trajectory_eval_failed", 1, rec.place())
	case t.evalError:
		r.count("trajectory_eval_error", 1, rec.place())
	case t.fallback && r.opt.SkipFallback:
		r.count("trajectory_fallback_score", 1, rec.place())
	default:
		return false
	}
	return true
}

// reward is that of a trajectory: the number that data.reward.field names, else what data.reward.mode makes of its
// scores. A score that the mode wants has to be there, but for compat, where an absent one is 0 as in the reference.
func (r *fileReader) reward(t *trajectory) (float64, error) {
	opt := r.opt.Reward
	switch {
	case r.opt.QueriesOnly: // only the pool counts
		return 0, nil
	case opt.Field != nil && !t.hasReward:
		return 0, fmt.Errorf("no %s, which data.reward.field names%s", *opt.Field, r.like(*opt.Field))
	case opt.Field != nil:
		return t.reward, nil
	}
	if missing := opt.Missing(t.scores); missing != "" && !r.opt.Compat {
		return 0, fmt.Errorf("no %s, which data.reward.mode=%s wants%s (data.reward.field=NAME takes any recorded number as the reward)",
			missing, opt.Mode, r.like(missing))
	}
	return opt.Reward(t.scores)
}

// like says which unknown key of the trajectories so far may be the one that is missing, or that others have it.
func (r *fileReader) like(missing string) string {
	if key := r.parser.trajectoryKeys.Like(missing); key != "" {
		return fmt.Sprintf(": is it %.60q, which is not read?", key)
	}
	if n := len(r.out.reward); n > 0 {
		return fmt.Sprintf(" (missing or null; %d before have it): leave such candidates out of the file", n)
	}
	for _, u := range r.parser.trajectoryKeys.Unknown() {
		if !strings.HasPrefix(u.Key, "vqa_eval_mode=") { // a value
			return fmt.Sprintf("; %.60q is there and not read", u.Key)
		}
	}
	return ""
}

// picks returns the global ids of a trajectory, after checking that all its fields agree.
func (r *fileReader) picks(rec *record, t *trajectory, pool []int64) ([]int64, error) {
	ptr, global, pos := rec.ints(t.pointer), rec.ints(t.global), rec.ints(t.pos)
	fromPool := func(field string, positions []int64) ([]int64, error) {
		out := make([]int64, len(positions))
		for k, p := range positions {
			if p < 0 || p >= int64(len(pool)) {
				return nil, fmt.Errorf(".%s[%d] = %d outside pool of %d candidates (0..%d)", field, k, p, len(pool), len(pool)-1)
			}
			out[k] = pool[p]
		}
		return out, nil
	}
	agree := func(field string, positions, named []int64, by string) error {
		of, err := fromPool(field, positions)
		if err == nil && !slices.Equal(of, named) {
			err = fmt.Errorf(": %s %v names %v of candidate_pool_ids, %s says %v", field, positions, of, by, named)
		}
		return err
	}
	var picks []int64
	var err error
	switch {
	case t.global.present:
		if picks = global; t.pointer.present && rec.hasPool {
			err = agree("pointer", ptr, global, "pointer_global")
		}
	case t.pointer.present:
		picks = ptr
	case t.pos.present && rec.hasPool:
		picks, err = fromPool("pointer_pos", pos)
	case t.pos.present:
		err = fmt.Errorf(".pointer_pos gives positions, but the query has no candidate_pool_ids")
	default:
		err = fmt.Errorf(" has no pointer, pointer_global or pointer_pos")
	}
	if err != nil {
		return nil, err
	}
	if err := r.checkShots(len(picks)); err != nil {
		return nil, fmt.Errorf(" %w", err)
	}
	if t.pos.present && rec.hasPool {
		if err := agree("pointer_pos", pos, picks, "pointer"); err != nil {
			return nil, err
		}
	}
	for k, id := range picks {
		if err := r.checkID(id); err != nil {
			return nil, fmt.Errorf(".pointer[%d] %w", k, err)
		}
		if id == rec.id {
			return nil, fmt.Errorf(".pointer[%d] is the query itself: its own answer would be its demonstration (are the "+
				"query ids rows of the same table as the candidates'?)", k)
		}
		if _, in := r.pos[id]; !in && rec.hasPool {
			hint := ""
			if positions := !slices.ContainsFunc(picks, func(x int64) bool { return x < 0 || x >= int64(len(pool)) }); positions {
				hint = fmt.Sprintf(", but inside 0..%d: positions in candidate_pool_ids are pointer_pos, pointer holds ids", len(pool)-1)
			}
			return nil, fmt.Errorf(".pointer[%d] = %d is not among the %d candidate_pool_ids%s", k, id, len(pool), hint)
		}
	}
	if id, twice := repeated(picks); twice {
		return nil, fmt.Errorf(" picks %d twice", id)
	}
	return picks, nil
}
