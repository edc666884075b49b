package beamdata

import (
	"fmt"
	"slices"

	"fulcrum/beamdata/audit"
	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/reports/page"
)

// PoolOptions configures the candidate pools of training queries (config section data.pool).
type PoolOptions struct {
	// held-out questions and others about their images leave (drop) or stay in the pools of training queries (keep, as the reference)
	HeldOut string `koanf:"held_out" enum:"drop,keep"`
}

// heldRows are the rows of held-out questions and of other questions about their images.
type heldRows struct {
	is        []bool // by row of the table
	questions int
	mates     int // other rows about their images
	unknown   int // questions whose image is not known
}

// heldOut marks the rows that training pools should not hold.
func (b *Bundle) heldOut() heldRows {
	table := b.table()
	if table == nil {
		return heldRows{}
	}
	h := heldRows{is: make([]bool, table.Rows)}
	images := map[int64]bool{}
	for _, s := range []*Set{b.Val, b.Eval, b.Sealed} {
		for i := range s.Len() {
			row := s.IDs[i]
			if h.is[row] {
				continue
			}
			h.is[row] = true
			h.questions++
			image, ok := b.image(int(row))
			if images[image] = images[image] || ok; !ok {
				h.unknown++
			}
		}
	}
	for row := range h.is {
		if image, ok := b.image(row); ok && images[image] && !h.is[row] {
			h.is[row] = true
			h.mates++
		}
	}
	return h
}

// sealed reads which questions nothing may score, and refuses data that would.
func (l *loader) sealed(path string) error {
	r, err := readReader(path, "data.sealed", l.table.Rows)
	if err != nil {
		return err
	}
	b := l.bundle
	b.Sealed = &Set{IDs: r.IDs}
	is := list.Set(r.IDs)
	for _, s := range []*Set{b.Val, b.Eval, b.RCE, b.Records, b.Online} {
		for i := range s.Len() {
			if is[s.IDs[i]] {
				return fmt.Errorf("data.sealed=%s: its query %d is in the %s set of data.name=%s too: want questions that nothing else scores",
					path, s.IDs[i], s.Name, b.Name)
			}
		}
	}
	return nil
}

// masker takes held-out rows out of the pools of training sets.
type masker struct {
	bundle        *Bundle
	held          heldRows
	stores        map[*store]*store // by the whole one
	dropped, seen int               // candidates in pools of training queries
}

// dropHeldOut takes the held-out rows out of the pools of the training sets. Validation and evaluation keep their pools.
func (b *Bundle) dropHeldOut() {
	m := masker{bundle: b, held: b.heldOut(), stores: map[*store]*store{}}
	one := b.Records == b.RCE
	b.RCE = m.recorded(b.RCE)
	if one {
		b.Records = b.RCE
	} else {
		b.Records = m.recorded(b.Records)
	}
	b.Records = m.left(b.Records, 2, "group_without_two_candidates", (*Set).NumCandidates)
	b.Online = m.left(m.mask(b.Online), 1, "query_without_candidates", (*Set).PoolSize)
	b.HeldOut = m.text()
}

// recorded masks a set and drops the recorded candidates that hold a held-out row, and queries that have no others.
func (m *masker) recorded(s *Set) *Set {
	out := m.mask(s)
	for i := range s.Len() {
		if n := s.NumCandidates(i) - out.NumCandidates(i); n > 0 {
			m.bundle.skip("candidate_with_held_out_question", n, s.IDs[i])
		}
	}
	return m.left(out, 1, "query_without_candidates", (*Set).NumCandidates)
}

// mask returns the same queries with pools and recorded candidates that hold no held-out row.
func (m *masker) mask(s *Set) *Set {
	if s.Len() == 0 {
		return s
	}
	if m.stores[s.store] == nil {
		m.stores[s.store] = s.store.without(m.held.is)
	}
	out := *s
	if out.store = m.stores[s.store]; out.store != s.store {
		if out.whole = s; s.Scorer != nil {
			out.Scorer = maskedScorer{&out}
		}
	}
	for i := range s.Len() {
		m.seen += s.PoolSize(i)
		m.dropped += s.PoolSize(i) - out.PoolSize(i)
	}
	if out.whole == nil {
		return s
	}
	return &out
}

// left drops and counts the queries of a masked set that had at least so many candidates and no longer have.
func (m *masker) left(s *Set, least int, reason string, size func(*Set, int) int) *Set {
	if s.Len() == 0 || s.whole == nil {
		return s
	}
	keep := func(i int) bool { return size(s, i) >= least || size(s.whole, i) < least }
	n := 0
	for i := range s.Len() {
		if !keep(i) {
			m.bundle.skip(reason, 1, s.IDs[i])
			n++
		}
	}
	if n == 0 {
		return s
	}
	return s.Filter(keep)
}

// Paired returns the queries of a training set that can swap rewards with another by position: those whose pool has lost
// held-out rows and no longer has the size of another query's are left out and counted.
func (b *Bundle) Paired(s *Set) *Set {
	sizes := map[int]int{}
	for i := range s.Len() {
		sizes[s.PoolSize(i)]++
	}
	return s.Filter(func(i int) bool {
		alone := s.whole != nil && sizes[s.PoolSize(i)] < 2 && s.PoolSize(i) < s.whole.PoolSize(i)
		if alone {
			b.skip("query_without_placebo", 1, s.IDs[i])
		}
		return !alone
	})
}

// Questions returns a digest of the questions of a set, whatever pools and rewards they have, and a sketch; "" of an empty set.
func (b *Bundle) Questions(s *Set) (sum string, sketch []string) {
	if s.Len() == 0 {
		return "", nil
	}
	h, members := digest.New(), make([]string, s.Len())
	for i, id := range slices.Sorted(slices.Values(s.IDs)) {
		text := b.Text(int(id))
		members[i] = fmt.Sprintf("%d %q\n", id, text)
		if b.Synthetic || text == "" { // the same words of another world, or none: its row is the question
			row := b.table().Row(int(id))
			members[i] += fmt.Sprint(row[:min(16, len(row))])
		}
		fmt.Fprint(h, members[i])
	}
	return h.Hex(), digest.Sketch(members)
}

// text says in a sentence what was left out; "" where nothing was and every image is known.
func (m *masker) text() string {
	h := m.held
	if m.seen == 0 || m.dropped == 0 && h.unknown == 0 {
		return ""
	}
	text := fmt.Sprintf("held-out questions (%s) and others about their images (%s) are no candidates of training queries: %s of %s left "+
		"their pools (data.pool.held_out=drop)", page.Thousands(h.questions), page.Thousands(h.mates), page.Thousands(m.dropped),
		page.Thousands(m.seen))
	if h.unknown > 0 {
		text += fmt.Sprintf("; the images of %s held-out questions are not known (image_id in items.jsonl or the records' query): of these "+
			"only the questions' own rows left", page.Thousands(h.unknown))
	}
	return text
}

// auditHeldOut looks for training queries with a held-out row in their pools.
func (b *Bundle) auditHeldOut() []audit.Fault {
	held := b.heldOut()
	with, looked, example := 0, 0, int64(0)
	for _, s := range onePerFile(b.Online, b.RCE, b.Records) {
		var last []int32
		holds := false
		for i := 0; i < s.Len(); i += audit.Every(s.Len(), audit.Sampled) {
			pool := s.store.pools[s.at(i)]
			if looked++; looked == 1 || !sameSlice(pool, last) {
				last, holds = pool, slices.ContainsFunc(pool, func(row int32) bool { return held.is[row] })
			}
			if holds {
				if with == 0 {
					example = s.IDs[i]
				}
				with++
			}
		}
	}
	return audit.HeldOut(with, looked, example)
}

// without returns the store with pools that hold no row of held, without the recorded candidates that do; st itself where none
// does. Queries that share a pool still share one.
func (st *store) without(held []bool) *store {
	out := *st
	out.pools, out.skip = slices.Clone(st.pools), slices.Clone(st.skip)
	out.positions, out.rewards, out.scores, out.methods = nil, nil, nil, nil
	out.start = make([]int64, 1, len(st.start))
	var pool, to []int32
	changed := false
	for i, whole := range st.pools {
		if i == 0 || !sameSlice(whole, st.pools[i-1]) {
			pool, to = leaveOut(whole, held, to)
			changed = changed || len(pool) < len(whole)
		}
		out.pools[i] = pool
		if st.skip != nil && st.skip[i] >= 0 {
			out.skip[i] = to[st.skip[i]]
		}
		out.takeCandidates(st, i, to)
	}
	if !changed {
		return st
	}
	return &out
}

// leaveOut returns the rows of a pool that are not held (the pool itself where none is) and, in to, where each position of
// the pool goes; -1 = left out.
func leaveOut(whole []int32, held []bool, to []int32) (pool, positions []int32) {
	to = slices.Grow(to[:0], len(whole))
	n := int32(0)
	for _, row := range whole {
		if held[row] {
			to = append(to, -1)
			continue
		}
		to = append(to, n)
		n++
	}
	if int(n) == len(whole) {
		return whole, to
	}
	return list.Filter(whole, func(row int32) bool { return !held[row] }), to
}

// takeCandidates appends the candidates of query i of st whose positions all go somewhere.
func (st *store) takeCandidates(from *store, i int, to []int32) {
	n := int64(from.shots)
	skip, skipNow := int32(-1), int32(-1)
	if from.skip != nil {
		skip, skipNow = from.skip[i], st.skip[i]
	}
	for c := from.start[i]; c < from.start[i+1]; c++ {
		begin := len(st.positions)
		for _, p := range from.positions[c*n : (c+1)*n] {
			if skip >= 0 && p >= skip { // positions leave the query itself out
				p++
			}
			at := to[p]
			if at < 0 {
				break
			}
			if skipNow >= 0 && at > skipNow {
				at--
			}
			st.positions = append(st.positions, at)
		}
		if int64(len(st.positions)-begin) < n {
			st.positions = st.positions[:begin]
			continue
		}
		st.rewards = append(st.rewards, from.rewards[c])
		if from.scores != nil {
			st.scores, st.methods = append(st.scores, from.scores[c]), append(st.methods, from.methods[c])
		}
	}
	st.start = append(st.start, int64(len(st.rewards)))
}

// maskedScorer scores choices from a masked set's pools by the scorer of the whole ones.
type maskedScorer struct{ set *Set }

func (m maskedScorer) Score(i int, positions []int32) (float64, float64) {
	return m.set.whole.Scorer.Score(i, m.set.inWhole(i, positions))
}

func (m maskedScorer) Reward(i int, positions []int32) float64 {
	return Reward(m.set.whole.Scorer, i, m.set.inWhole(i, positions))
}

// inWhole returns the positions that candidates of query i have in its whole pool.
func (s *Set) inWhole(i int, positions []int32) []int32 {
	pool, whole := s.Pool(i), s.whole.Pool(i)
	if len(pool) == len(whole) {
		return positions
	}
	return list.Map(positions, func(p int32) int32 { return int32(slices.Index(whole, pool[p])) })
}
