package beamdata

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// builder makes the store of a set from its queries, their pools and, if given, the beam file with their candidates.
type builder struct {
	opt    Options
	rows   int     // of the embedding table
	pos    []int32 // pos[id] is the position of id in the current pool where pool[pos[id]] == id
	counts map[string]int
}

func newBuilder(opt Options, rows int, counts map[string]int) *builder {
	return &builder{opt: opt, rows: rows, pos: make([]int32, rows), counts: counts}
}

// enter makes position look up in pool.
func (b *builder) enter(pool []int32) {
	for k, id := range pool {
		b.pos[id] = int32(k)
	}
}

// position returns the position of id in the pool last entered, or -1.
func (b *builder) position(pool []int32, id int32) int32 {
	if at := b.pos[id]; int(at) < len(pool) && pool[at] == id {
		return at
	}
	return -1
}

// fromFile returns the store of a beam file alone: its own pools (RL), or one pool for all (legacy).
func (b *builder) fromFile(f *beamFile) (*store, error) {
	st := &store{ids: f.ids, left: f.left, shots: f.shots, start: f.start, rewards: f.reward, scores: f.scores, methods: f.method,
		names: f.names}
	cut := b.opt.PoolSize
	if b.opt.Compat && f.format == "legacy" { // the reference cuts the pools of RL files only
		cut = nil
	}
	if f.pools != nil {
		st.pools = f.pools
		if f.local {
			st.positions = f.picks
			return st, nil
		}
		return st, b.locate(st, f.picks, f.path, cut)
	}
	pool := f.gathered()
	if b.opt.LegacyPool == "full_table" { // the reference: labels count in the gathered pool, candidates are the table
		b.enter(pool)
		st.positions = f.picks
		for k, id := range f.picks {
			st.positions[k] = b.position(pool, id)
		}
		pool = list.Convert[int32](stat.Indices(b.rows))
		st.pools = slices.Repeat([][]int32{pool}, len(f.ids))
		return st, nil
	}
	st.pools = slices.Repeat([][]int32{pool}, len(f.ids))
	if !b.opt.Compat {
		b.enter(pool)
		st.skip = make([]int32, len(f.ids))
		for i, id := range f.ids {
			st.skip[i] = b.position(pool, int32(id))
			if st.skip[i] >= 0 {
				b.counts["query_dropped_from_its_pool"]++
			}
		}
	}
	return st, b.locate(st, f.picks, f.path, cut)
}

// locate turns picks (global ids) into positions of each query's pool, in place, after cutting the
// pools to cut (null = whole). A candidate that needs an id behind the cut is dropped and counted.
func (b *builder) locate(st *store, picks []int32, path string, cut *int) error {
	var last []int32
	shots := int64(st.shots)
	kept := int64(0) // candidates so far
	from := int64(0)
	for i := range st.ids {
		pool := st.pools[i]
		if n := cut; n != nil && len(pool) > *n {
			pool = pool[:*n]
			st.pools[i] = pool
			if st.skip != nil && int(st.skip[i]) >= *n {
				st.skip[i] = -1
			}
		}
		if i == 0 || !sameSlice(pool, last) {
			b.enter(pool)
			last = pool
		}
		to := st.start[i+1]
		for c := from; c < to; c++ {
			whole := true
			for k := range shots {
				id := picks[c*shots+k]
				at := b.position(pool, id)
				if at < 0 && cut == nil {
					return fmt.Errorf("%s: query %d: candidate %d picks %d, which is not in the query's pool", path, st.ids[i], c-from+1, id)
				}
				whole = whole && at >= 0
				if st.skip != nil && st.skip[i] >= 0 && at > st.skip[i] {
					at--
				}
				picks[kept*shots+k] = at
			}
			if !whole {
				b.counts["candidate_behind_pool_cut"]++
				continue
			}
			st.rewards[kept] = st.rewards[c]
			if st.scores != nil {
				st.scores[kept], st.methods[kept] = st.scores[c], st.methods[c]
			}
			kept++
		}
		from = to
		st.start[i+1] = kept
	}
	st.positions = picks[:kept*shots]
	st.rewards = st.rewards[:kept]
	return nil
}

// fromReader returns the store of all queries of a reward table, in its order and with its pools.
// Candidates come from f (nil = none); queries of f that the table lacks are counted, and a pool of f
// that differs from the table's is refused, because positions would mean different things.
func (b *builder) fromReader(r *Reader, f *beamFile) (*store, error) {
	st := &store{ids: r.IDs, pools: append([][]int32(nil), r.pools...)}
	if f == nil {
		f = &beamFile{}
	}
	st.shots, st.left, st.names = f.shots, f.left, f.names
	at := make(map[int64]int32, len(f.ids))
	for i, id := range f.ids {
		at[id] = int32(i)
	}
	st.start = make([]int64, 1, len(r.IDs)+1)
	var picks []int32
	for i, id := range r.IDs {
		q, ok := at[id]
		if !ok {
			st.start = append(st.start, int64(len(st.rewards)))
			continue
		}
		delete(at, id) // the remaining ids are missing in r
		if f.pools != nil && !slices.Equal(f.pools[q], r.pools[i]) {
			return nil, fmt.Errorf("%s: query %d: candidate_pool_ids differ from the query's pool in %s", f.path, id, r.path)
		}
		from, to := f.start[q], f.start[q+1]
		picks = append(picks, f.picks[from*int64(f.shots):to*int64(f.shots)]...)
		st.rewards = append(st.rewards, f.reward[from:to]...)
		if f.scores != nil {
			st.scores = append(st.scores, f.scores[from:to]...)
			st.methods = append(st.methods, f.method[from:to]...)
		}
		st.start = append(st.start, int64(len(st.rewards)))
	}
	const rowless = "query_without_reader_row"
	if n := len(at); n > 0 {
		first := f.ids[slices.Min(slices.Collect(maps.Values(at)))]
		b.counts[rowless] += n
		f.lost[rowless], f.first[rowless] = n, fmt.Sprintf("%s: query %d", filepath.Base(f.path), first)
	}
	if len(at) > 0 && len(at) == len(f.ids) {
		return nil, fmt.Errorf("%s: none of its %d queries is in %s", f.path, len(f.ids), r.path)
	}
	return st, b.locate(st, picks, f.path, b.opt.PoolSize)
}
