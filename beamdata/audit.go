package beamdata

import (
	"hash/maphash"
	"math"
	"slices"
	"unsafe"

	"fulcrum/beamdata/audit"
	"fulcrum/internal/list"
	"fulcrum/rewardutil/recorded"
)

// Audit looks for faults of the data that training would not notice: see package audit. It checks the candidates
// of imitated (sft and rce) and of baseline (offline GRPO); either may be nil. Rewards that differ by no
// more than precision are equal.
func (b *Bundle) Audit(imitated, baseline *Set, precision float64) []audit.Fault {
	splits := b.splits()
	out := b.auditBlank(splits)
	if len(out) == 0 { // else copies, leaks and pools would report the same fault again
		out = audit.Overlap(splits)
		for _, s := range onePerFile(b.Online, b.RCE, b.Records, b.Val, b.Eval) {
			out = append(append(out, s.auditPools()...), s.auditCopies()...)
		}
	}
	out = append(out, b.auditHeldOut()...)
	out = audit.Once(out, "pool_unlike_query") // the files of a run have the same pools
	if imitated.Len() > 0 && imitated != baseline {
		out = append(out, audit.Rewards(imitated.groups("imitation", false), precision)...)
	}
	if baseline.Len() > 0 {
		out = append(out, audit.Rewards(baseline.groups("grpo", true), precision)...)
	}
	learnt := onePerFile(imitated, baseline)
	out = append(append(out, auditScales(learnt, b.Val, "validation")...), auditScales(learnt, b.Eval, "held-out queries")...)
	for _, s := range onePerFile(b.RCE, b.Records, b.Eval) {
		if s.Scorer != nil {
			candidates, accuracies := s.scored()
			faults := audit.Agreement(s.Name, candidates)
			if len(faults) == 0 && len(accuracies) > 0 {
				faults = audit.Agreement(s.Name+" (accuracy)", accuracies)
			}
			out = append(out, faults...)
		}
	}
	for _, s := range learnt {
		out = append(append(out, s.auditContradictions()...), s.auditRange()...)
	}
	return out
}

// auditBlank looks for queries whose rows of the table are equal.
func (b *Bundle) auditBlank(splits []audit.Split) []audit.Fault {
	table := b.table()
	seed, counts := maphash.MakeSeed(), map[uint64][]int64{}
	looked, most := 0, uint64(0)
	for _, s := range splits {
		for i := 0; i < len(s.Of); i += audit.Every(len(s.Of), audit.Sampled) {
			id := s.Of[i].ID
			h := hashFloats(seed, table.Row(int(id)))
			looked++
			if counts[h] = append(counts[h], id); len(counts[h]) > len(counts[most]) {
				most = h
			}
		}
	}
	same := counts[most]
	if len(same) < 2 {
		return nil
	}
	zero := !slices.ContainsFunc(table.Row(int(same[0])), func(x float32) bool { return x != 0 })
	return audit.Blank(len(same), looked, zero, same[0], same[1])
}

// auditScales compares the rewards of validation and held-out queries with the training rewards of another file.
func auditScales(learnt []*Set, judged *Set, name string) (out []audit.Fault) {
	for _, s := range learnt {
		if judged.Len() == 0 || s.file() == judged.file() {
			return nil
		}
		faults := audit.Scales(s.groups("training", true), judged.groups(name, true))
		if faults == nil {
			return nil // beams and records may have scores of their own
		}
		out = faults
	}
	return out
}

// table is the embedding table; nil without queries.
func (b *Bundle) table() *Table {
	var table *Table
	for _, s := range []*Set{b.RCE, b.Records, b.Online, b.Val, b.Eval} {
		if s.Len() > 0 {
			table = s.Table
		}
	}
	return table
}

// onePerFile leaves out empty sets, and a second set of the same file: training and validation queries of a file are alike.
func onePerFile(sets ...*Set) []*Set {
	var out []*Set
	for _, s := range sets {
		if s.Len() > 0 && !slices.ContainsFunc(out, func(o *Set) bool { return o.file() == s.file() }) {
			out = append(out, s)
		}
	}
	return out
}

// file is what sets of one file have in common.
func (s *Set) file() *store {
	if s.whole != nil {
		return s.whole.store
	}
	return s.store
}

// auditCopies looks for candidates of a pool with the same embedding.
func (s *Set) auditCopies() []audit.Fault {
	seed := maphash.MakeSeed()
	hashes := map[int32]uint64{}
	copies, looked, example := 0, 0, int32(0)
	for _, i := range audit.Evenly(s.Len(), s.looks()) {
		in := map[uint64]bool{}
		for _, row := range s.evenly(i) {
			h, known := hashes[row]
			if !known {
				h = hashFloats(seed, s.Table.Row(int(row)))
				hashes[row] = h
			}
			looked++
			if in[h] {
				copies, example = copies+1, row
			}
			in[h] = true
		}
	}
	return audit.Identical(s.Name, copies, looked, int64(example))
}

// auditContradictions looks for groups that hold a selection twice, with different rewards.
func (s *Set) auditContradictions() []audit.Fault {
	groups, looked, example := 0, 0, int64(0)
	for i := 0; i < s.Len(); i += audit.Every(s.Len(), 8*looksPools) {
		looked++
		var seen []Candidate
		for g := range s.NumCandidates(i) {
			c := s.Candidate(i, g)
			if slices.ContainsFunc(seen, func(o Candidate) bool {
				return slices.Equal(o.Positions, c.Positions) && math.Abs(o.Reward-c.Reward) > 1e-3*math.Max(1, math.Abs(c.Reward))
			}) {
				if groups == 0 {
					example = s.IDs[i]
				}
				groups++
				break
			}
			seen = append(seen, c)
		}
	}
	return audit.Contradictions(s.Name, groups, looked, example)
}

// auditRange looks for recorded probabilities and accuracies outside [0, 1].
func (s *Set) auditRange() []audit.Fault {
	outside, looked, query, example := 0, 0, int64(0), 0.0
	for i := 0; i < s.Len(); i += audit.Every(s.Len(), 8*looksPools) {
		for g := range s.NumCandidates(i) {
			c := s.recorded(i, g)
			looked++
			for _, x := range []float64{c.GTProb, c.AccScore, c.Correct} { // 0 where not recorded
				if x < -1e-3 || x > 1+1e-3 { // files hold rounded numbers
					outside, query, example = outside+1, s.IDs[i], x
					break
				}
			}
		}
	}
	return audit.Outside(s.Name, outside, looked, query, example)
}

// splits lists the training queries (each once, whatever sets it is in), the validation and the held-out ones.
func (b *Bundle) splits() []audit.Split {
	table := b.table()
	if table == nil {
		return nil
	}
	train, stamp := audit.Split{Name: "training", Trains: true, Rows: true}, make([]uint8, table.Rows)
	for k, s := range []*Set{b.RCE, b.Records, b.Online} {
		for i := range s.Len() {
			switch id := s.IDs[i]; stamp[id] {
			case 0, uint8(k + 1): // new, or twice in this set
				train.Of = append(train.Of, audit.Query{ID: id})
				stamp[id] = uint8(k + 1)
			}
		}
	}
	out := []audit.Split{train}
	for _, held := range []struct {
		name string
		set  *Set
	}{{"validation", b.Val}, {"held-out", b.Eval}} {
		out = append(out, audit.Split{Name: held.name, Rows: true,
			Of: list.Make(held.set.Len(), func(i int) audit.Query { return audit.Query{ID: held.set.IDs[i]} })})
	}
	b.describe(table, out)
	return out
}

// describe hashes each query's embedding, which the policy sees, together with its question where the text is known.
func (b *Bundle) describe(table *Table, splits []audit.Split) {
	seed := maphash.MakeSeed()
	begins := make(map[uint64]int32) // hash of a row's first values → how many queries have it
	var keys [][]uint64
	for _, s := range splits {
		of := make([]uint64, len(s.Of))
		for i, q := range s.Of {
			of[i] = hashFloats(seed, table.Row(int(q.ID))[:min(16, table.Dim)]) // a cache line: most rows differ there
			begins[of[i]]++
		}
		keys = append(keys, of)
	}
	for k, s := range splits {
		for i := range s.Of {
			q := &s.Of[i]
			key := keys[k][i]
			if begins[key] > 1 {
				key = hashFloats(seed, table.Row(int(q.ID)))
			}
			if picture, ok := b.image(int(q.ID)); ok {
				text := b.Items.at(int(q.ID)).question
				key ^= maphash.String(seed, text)
				q.Group = max(1, maphash.Comparable(seed, picture))
				if text != "" { // the same question about the same picture is the same whatever its embedding
					key = maphash.String(seed, text) ^ q.Group
				}
			}
			q.Content = max(1, key)
		}
	}
}

func hashFloats(seed maphash.Seed, row []float32) uint64 {
	return maphash.Bytes(seed, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(row))), 4*len(row)))
}

// looksPools bounds the queries whose pools are read.
const looksPools = 512

// looks returns that bound, or the one for queries that share one pool.
func (s *Set) looks() int {
	if s.ownPools() {
		return looksPools
	}
	return 16
}

// auditPools looks for queries among their own candidates, and for pools that are not near their queries.
func (s *Set) auditPools() []audit.Fault {
	var closer []float64
	byID, byCopy, looked := 0, 0, 0
	example := int64(0)
	var previous []int32
	for i := 0; i < s.Len(); i += audit.Every(s.Len(), s.looks()) {
		pool := s.evenly(i)
		row := s.Row(i)
		query := s.Table.Row(int(row))
		looked++
		switch {
		case slices.Contains(s.Pool(i), row):
			if byID == 0 {
				example = s.IDs[i]
			}
			byID++
		case slices.ContainsFunc(pool, func(c int32) bool { return slices.Equal(s.Table.Row(int(c)), query) }):
			if byID+byCopy == 0 {
				example = s.IDs[i]
			}
			byCopy++
		}
		if len(previous) > 0 && len(pool) > 0 {
			closer = append(closer, s.nearness(query, pool)-s.nearness(query, previous))
		}
		previous = pool
	}
	out := audit.OwnPools(s.Name, byID, byCopy, looked, example)
	const pairs = 128 // pools, all pairs of which are compared: those drawn at random are near no query, whatever the embeddings say
	if s.ownPools() && !audit.Drawn(list.Map(audit.Evenly(s.Len(), pairs), s.Pool), s.Table.Rows) {
		out = append(out, audit.Nearness(s.Name, closer)...)
	}
	return out
}

// ownPools reports whether queries have different pools, not one for all.
func (s *Set) ownPools() bool {
	return s.Len() > 1 && !sameSlice(s.store.pools[s.at(0)], s.store.pools[s.at(s.Len()-1)])
}

// evenly returns up to 64 candidates of query i, spread over its pool.
func (s *Set) evenly(i int) []int32 {
	pool := s.Pool(i)
	return list.Map(audit.Evenly(len(pool), 64), func(k int) int32 { return pool[k] })
}

// nearness returns the mean cosine of a query with some candidates.
func (s *Set) nearness(query []float32, rows []int32) float64 {
	const looks = 16
	at := audit.Evenly(len(rows), looks)
	sum := list.Sum(at, func(k int) float64 { return recorded.Cosine(query, s.Table.Row(int(rows[k]))) })
	return sum / float64(max(len(at), 1))
}

// groups returns the recorded rewards as the phases read them.
func (s *Set) groups(name string, baseline bool) audit.Groups {
	var rewards []float64
	return audit.Groups{Name: name, Baseline: baseline, Len: s.Len(), Of: func(i int) (int64, []float64) {
		rewards = rewards[:0]
		for g := range s.NumCandidates(i) {
			rewards = append(rewards, s.Candidate(i, g).Reward)
		}
		return s.IDs[i], rewards
	}}
}

// scored lists recorded candidates with the scorer's plain reward and, where both are known, their accuracies.
func (s *Set) scored() (rewards, accuracies []audit.Scored) {
	const most = 512 // queries
	if s.whole != nil {
		s = s.whole // positions are off by one in the file's own pools
	}
	scorer := s.Scorer
	if l, ok := scorer.(levelScorer); ok {
		scorer = l.inner
	}
	for i := 0; i < s.Len(); i += audit.Every(s.Len(), most) {
		for g := range s.NumCandidates(i) {
			c := s.recorded(i, g)
			known := []float64{c.Reward}
			if c.Has&recorded.BeamScore != 0 {
				known = append(known, c.BeamScore)
			}
			if c.Has&recorded.GTProb != 0 {
				known = append(known, c.GTProb)
			}
			rewards = append(rewards, audit.Scored{Query: s.IDs[i], Candidate: g, Recorded: known, Reader: Reward(scorer, i, c.Positions),
				Shifted: s.shifted(scorer, i, c.Positions)})
			if c.Has&recorded.AccScore == 0 {
				continue
			}
			if _, acc := scorer.Score(i, c.Positions); !math.IsNaN(acc) {
				accuracies = append(accuracies, audit.Scored{Query: s.IDs[i], Candidate: g, Recorded: []float64{c.AccScore}, Reader: acc})
			}
		}
	}
	return rewards, accuracies
}

// shifted returns the rewards of a selection under wrong readings (off by one), in the order of audit.Shifts.
func (s *Set) shifted(scorer Scorer, i int, positions []int32) []float64 {
	by := func(d int) float64 {
		n := s.PoolSize(i)
		return Reward(scorer, i, list.Map(positions, func(p int32) int32 { return int32((int(p) + d + n) % n) }))
	}
	at := func(j int) float64 {
		j = (j + s.Len()) % s.Len()
		if slices.ContainsFunc(positions, func(p int32) bool { return int(p) >= s.PoolSize(j) }) {
			return math.NaN()
		}
		return Reward(scorer, j, positions)
	}
	return []float64{by(-1), by(1), at(i + 1), at(i - 1)}
}
