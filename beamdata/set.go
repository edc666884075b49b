package beamdata

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/rewardutil/recorded"
)

// Set is a list of queries over one embedding table, each with its candidate pool, maybe with
// recorded candidates and maybe with a scorer. Subsets share all storage.
type Set struct {
	Name   string
	Table  *Table
	IDs    []int64 // [Q] global ids: the embedding rows of the queries
	Shots  int     // S: length of the recorded candidates; 0 = none are recorded
	Scorer Scorer  // exact rewards of any choice; nil where unknown

	store  *store
	sel    []int32           // query i of this set is query sel[i] of the store; nil = all
	whole  *Set              // the same queries before held-out rows left their pools; nil = none has left
	levels *recorded.Options // rewards of several levels; nil = the recorded ones
	ties   *int64            // seed of TieOrder; nil = the pool's order
	items  *Items            // what is known about rows; nil = nothing
}

// Scorer gives the exact reward of any selection. Positions point into query i's pool and are
// unordered; accuracy is NaN where it is unknown. Safe for concurrent use.
type Scorer interface {
	Score(i int, positions []int32) (reward, accuracy float64)
}

// RewardScorer is implemented by scorers that can leave the accuracy out, which is much cheaper.
type RewardScorer interface {
	Reward(i int, positions []int32) float64
}

// Reward scores a selection without its accuracy.
func Reward(s Scorer, i int, positions []int32) float64 {
	if r, ok := s.(RewardScorer); ok {
		return r.Reward(i, positions)
	}
	reward, _ := s.Score(i, positions)
	return reward
}

// Candidate is one recorded selection. The embedded scores are as recorded; Has tells which are known.
type Candidate struct {
	Positions []int32 // [S] in the query's pool, in order of choice; shared, read-only
	Reward    float64 // by data.reward (RL files) or the beam's score (legacy files), not normalised
	Method    string  // gen_method: beam, retrieval, sample, random, a name of the file's own, or "" (not said)
	recorded.Trajectory
}

// store holds what all subsets of a set share.
type store struct {
	ids   []int64
	pools [][]int32       // a pool shared by many queries is stored once
	skip  []int32         // position of the query itself in its shared pool, which Pool leaves out; -1 = none; nil = none anywhere
	left  map[int64]int32 // by query id: position in candidate_pool_ids of the query itself, which its pool leaves out

	shots     int
	start     []int64 // [Q+1] candidates of query i are start[i] to start[i+1]
	positions []int32 // [C, S]
	rewards   []float64
	scores    []recorded.Trajectory // nil for legacy files: BeamScore is the reward
	methods   []uint8               // index into names; nil for legacy files
	names     *methodNames
}

func newSet(name string, table *Table, st *store) *Set {
	return &Set{Name: name, Table: table, IDs: st.ids, Shots: st.shots, store: st}
}

// Len returns the number of queries; a nil set has none.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.IDs)
}

func (s *Set) at(i int) int {
	if s.sel == nil {
		return i
	}
	return int(s.sel[i])
}

// Row returns the embedding row of query i.
func (s *Set) Row(i int) int32 { return int32(s.IDs[i]) }

// Pool returns the candidate rows [K_i] of query i, never the query itself (but in the Python reference's reading). The
// slice is read-only; for a pool shared by all queries it is a fresh copy without the query.
func (s *Set) Pool(i int) []int32 {
	i = s.at(i)
	pool := s.store.pools[i]
	if s.store.skip == nil || s.store.skip[i] < 0 {
		return pool
	}
	at := s.store.skip[i]
	out := make([]int32, 0, len(pool)-1)
	return append(append(out, pool[:at]...), pool[at+1:]...)
}

// FilePosition returns where the candidate at position p of Pool(i) stands in the file's
// candidate_pool_ids: one further on when the file lists the query itself before it.
func (s *Set) FilePosition(i int, p int32) int32 {
	if s.whole != nil {
		return s.whole.FilePosition(i, s.inWhole(i, []int32{p})[0])
	}
	if left, ok := s.store.left[s.IDs[i]]; ok && p >= left {
		return p + 1
	}
	return p
}

// PoolSize returns len(Pool(i)) without making it.
func (s *Set) PoolSize(i int) int {
	i = s.at(i)
	n := len(s.store.pools[i])
	if s.store.skip != nil && s.store.skip[i] >= 0 {
		n--
	}
	return n
}

// TieOrder returns the positions of query i's pool in the order in which candidates are taken where all of them have
// exactly the same score: drawn by data.split_seed and the ids of query and candidate, so that the order of a pool does not
// decide for a policy without an opinion. Of sets made in memory, and where ties go by the pool, it is the pool's.
func (s *Set) TieOrder(i int) []int {
	pool := s.Pool(i)
	order := stat.Indices(len(pool))
	if s.ties != nil {
		key := func(k int) uint64 { return rng.Key(*s.ties, "ties", int(s.IDs[i]), int(pool[k])) }
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
	}
	return order
}

// NumCandidates returns how many candidates are recorded for query i.
func (s *Set) NumCandidates(i int) int {
	i = s.at(i)
	return int(s.store.start[i+1] - s.store.start[i])
}

// Candidate returns recorded candidate g of query i, in file order.
func (s *Set) Candidate(i, g int) Candidate {
	c := s.recorded(i, g)
	if s.levels != nil {
		accuracy := math.NaN()
		if s.levels.Weight(recorded.TaskLevel) != 0 {
			accuracy = s.taskLevel(i, c)
		}
		c.Reward = s.combine(*s.levels, i, c.Positions, c.Reward, accuracy)
	}
	return c
}

// recorded returns the candidate with the reward of its own level alone.
func (s *Set) recorded(i, g int) Candidate {
	st, n := s.store, int64(s.store.shots)
	c := st.start[s.at(i)] + int64(g)
	out := Candidate{Positions: st.positions[c*n : (c+1)*n : (c+1)*n], Reward: st.rewards[c]}
	if st.scores == nil {
		out.Method = "beam"
		out.Set(recorded.BeamScore, out.Reward)
	} else {
		out.Trajectory, out.Method = st.scores[c], (*st.names)[st.methods[c]]
	}
	return out
}

// Subset returns the queries with the given indices, in that order, sharing all storage.
func (s *Set) Subset(indices []int) *Set {
	out := *s
	out.IDs = make([]int64, len(indices))
	out.sel = make([]int32, len(indices))
	for k, i := range indices {
		out.IDs[k] = s.IDs[i]
		out.sel[k] = int32(s.at(i))
	}
	if s.whole != nil {
		out.whole = s.whole.Subset(indices)
	}
	if s.Scorer != nil {
		out.Scorer = subsetScorer{s.Scorer, slices.Clone(indices)}
	}
	return &out
}

// Filter returns the subset of the queries for which keep is true, in order.
func (s *Set) Filter(keep func(i int) bool) *Set {
	return s.Subset(list.Filter(stat.Indices(s.Len()), keep))
}

// named returns the same set under another name.
func (s *Set) named(name string) *Set {
	out := *s
	out.Name = name
	return &out
}

type subsetScorer struct {
	inner   Scorer
	indices []int
}

func (s subsetScorer) Score(i int, positions []int32) (float64, float64) {
	return s.inner.Score(s.indices[i], positions)
}

func (s subsetScorer) Reward(i int, positions []int32) float64 {
	return Reward(s.inner, s.indices[i], positions)
}

// Fingerprint returns a SHA-256 over the queries, pools, candidates, rewards and the table, in hex.
// Equal content gives equal fingerprints, whatever files it came from.
func (s *Set) Fingerprint() string {
	h := digest.New()
	var buf []byte
	flush := func(limit int) {
		if len(buf) > limit {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	put32 := func(v []int32) {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(v)))
		for _, x := range v {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(x))
			flush(1 << 16)
		}
	}
	h.Write(s.Table.digest())
	scorer := s.Scorer
	if s.levels != nil { // the weights stand for the sums
		fmt.Fprintf(h, "%+v", *s.levels)
		if l, ok := scorer.(levelScorer); ok {
			scorer = l.inner
		}
	}
	var last []int32
	one := make([]int32, 1)
	for i := range s.Len() {
		at := s.at(i)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(s.IDs[i]))
		pool := s.store.pools[at]
		if i == 0 || !sameSlice(pool, last) { // a shared pool is hashed once
			put32(pool)
			last = pool
		}
		for g := range s.NumCandidates(i) {
			c := s.recorded(i, g)
			put32(c.Positions)
			buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(c.Reward))
		}
		if scorer != nil { // the rewards of single candidates stand for the query's row of the reward table
			for p := range min(s.PoolSize(i), 64) {
				one[0] = int32(p)
				buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(Reward(scorer, i, one)))
			}
		}
		flush(1 << 16)
	}
	flush(-1)
	return h.Hex()
}

func sameSlice(a, b []int32) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
