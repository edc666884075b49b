package beamdata

import (
	"fmt"
	"math"
	"os"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/tensorfile"
	"fulcrum/rewardutil/group"
)

// Reader is the open-book copy reader as a reward table: it scores any choice from a query's pool exactly. Every
// demonstration d votes with its ten human answers, weighted by e^s_d; a closed-book prior competes with weight e^s0:
//
//	soft(D) = (Σ_D e^s g + e^s0 P0) / (Σ_D e^s + e^s0)                  the reward
//	mass(a) = Σ_D e^s count_d(a)/10 + e^s0 prior(a)                    for the answers a of D and the prior's best
//	prediction = the a of largest mass (to 9 digits; ties: the later string)
//
// where g is the expected VQA accuracy of an answer drawn from d's. The accuracy of the prediction
// needs the answers' texts (answers.go) and is NaN without them. The order of D does not matter.
type Reader struct {
	IDs []int64 // [Q] query rows

	path    string
	pools   [][]int32   // [Q][K]
	weight  [][]float64 // [Q][K] e^s
	acc     [][]float64 // [Q][K] g
	weight0 []float64   // [Q] e^s0
	prior0  []float64   // [Q] P0
	top     []string    // [Q] the prior's best answer
	answers *answers    // nil: accuracy unknown
	query   []queryAnswers
}

// readReader reads a reward table (.npz) whose ids must lie in an embedding table of the given rows.
func readReader(path, key string, rows int) (*Reader, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, missing(path, key, err)
	}
	arrays, err := tensorfile.ReadNPZ(path)
	if err != nil {
		return nil, err
	}
	r, err := newReader(arrays, rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.path = path
	return r, nil
}

// newReader checks the arrays of a reward table and joins them.
func newReader(arrays map[string]*tensorfile.Array, rows int) (*Reader, error) {
	t := &rewardTable{arrays: arrays}
	id, pool := t.get("query_id", 1), t.get("pool", 2)
	if t.err != nil {
		return nil, t.err
	}
	t.queries, t.candidates = pool.Shape[0], pool.Shape[1]
	if id.Shape[0] != t.queries || t.queries == 0 || t.candidates == 0 {
		return nil, fmt.Errorf("query_id holds %d queries, pool %v", id.Shape[0], pool.Shape)
	}
	score, acc := t.floats("score", 2), t.floats("demo_acc", 2)
	r := &Reader{weight0: t.floats("prior_score", 1), prior0: t.floats("prior_expected_acc", 1), top: t.get("prior_top_answer", 1).Strings}
	if t.err != nil {
		return nil, t.err
	}
	if len(r.top) != t.queries {
		return nil, fmt.Errorf("array prior_top_answer holds %d texts, want %d (strings, no numbers)", len(r.top), t.queries)
	}
	var err error
	if r.IDs, err = id.Int64s(); err != nil {
		return nil, err
	}
	ids, err := pool.Int64s()
	if err != nil {
		return nil, err
	}
	if err := exponentials("prior_score", r.weight0, t.queries); err != nil {
		return nil, err
	}
	if err := exponentials("score", score, t.queries); err != nil {
		return nil, err
	}
	return r, r.addPools(ids, score, acc, rows)
}

// rewardTable reads the arrays of a reward table and keeps the first error.
type rewardTable struct {
	arrays              map[string]*tensorfile.Array
	queries, candidates int
	err                 error
}

func (t *rewardTable) get(name string, dims int) *tensorfile.Array {
	a := t.arrays[name]
	switch {
	case t.err != nil:
	case a == nil:
		t.err = fmt.Errorf("no array %q: want query_id, pool, score, prior_score, demo_acc, prior_expected_acc, prior_top_answer", name)
	case len(a.Shape) != dims:
		t.err = fmt.Errorf("array %s has shape %v, want %d dimensions", name, a.Shape, dims)
	default:
		return a
	}
	return &tensorfile.Array{}
}

// floats returns the numbers of an array [queries] or [queries, candidates].
func (t *rewardTable) floats(name string, dims int) []float64 {
	a := t.get(name, dims)
	if t.err != nil {
		return nil
	}
	if a.Shape[0] != t.queries || dims == 2 && a.Shape[1] != t.candidates {
		t.err = fmt.Errorf("array %s has shape %v, want %d queries and %d candidates", name, a.Shape, t.queries, t.candidates)
		return nil
	}
	v, err := a.Float32s()
	if err != nil {
		t.err = err
		return nil
	}
	out := make([]float64, len(v))
	for i, x := range v {
		if err := group.CheckReward(float64(x)); err != nil {
			t.err = fmt.Errorf("array %s: query row %d holds %v, %w", name, i/max(1, len(v)/t.queries), x, err)
			return nil
		}
		out[i] = shortDecimal(x)
	}
	return out
}

// exponentials replaces the logarithms of an array.
func exponentials(name string, v []float64, queries int) error {
	for i := range v {
		if v[i] = math.Exp(v[i]); v[i] > group.MaxReward {
			return fmt.Errorf("array %s: query row %d holds a logarithm above that of %g", name, i/(len(v)/queries), group.MaxReward)
		}
	}
	return nil
}

// addPools adds each query's pool, weights and accuracies [K], after checking the ids.
func (r *Reader) addPools(ids []int64, score, acc []float64, rows int) error {
	K := len(ids) / len(r.IDs)
	flat := make([]int32, len(ids))
	seen := make(map[int64]bool, len(r.IDs))
	for i, p := range ids {
		if p < 0 || p >= int64(rows) {
			return &outsideError{fmt.Sprintf("query %d: pool[%d] = %d", r.IDs[i/K], i%K, p), p, rows}
		}
	}
	stamp := make([]int32, slices.Max(ids)+1) // stamp[id] = 1 + the last query whose pool holds id
	for i, q := range r.IDs {
		if q < 0 || q >= int64(rows) {
			return &outsideError{fmt.Sprintf("query %d", q), q, rows}
		}
		if seen[q] {
			return fmt.Errorf("query %d appears twice", q)
		}
		seen[q] = true
		for k, p := range ids[i*K : (i+1)*K] {
			switch {
			case p == q:
				return fmt.Errorf("query %d: pool[%d] is the query itself", q, k)
			case stamp[p] == int32(i+1):
				return fmt.Errorf("query %d: pool[%d] = %d is there twice", q, k, p)
			}
			stamp[p] = int32(i + 1)
			flat[i*K+k] = int32(p)
		}
		r.pools = append(r.pools, flat[i*K:(i+1)*K:(i+1)*K])
		r.weight = append(r.weight, score[i*K:(i+1)*K])
		r.acc = append(r.acc, acc[i*K:(i+1)*K])
	}
	return nil
}

// shortDecimal returns the decimal of at most 4, else 6 digits that x is the float32 of, else x: the
// tables hold rounded decimals, and recorded rewards were computed from those.
func shortDecimal(x float32) float64 {
	v := float64(x)
	for _, scale := range [...]float64{1e4, 1e6} {
		if d := math.Round(v*scale) / scale; float32(d) == x {
			return d
		}
	}
	return v
}

// ReaderScores returns the reader's own score of each candidate of query i's pool [K], which it gives without the query's answers; nil
// where no reward table says it.
func (s *Set) ReaderScores(i int) []float64 {
	return readerScores(s.Scorer, i, list.Map(stat.Indices(s.PoolSize(i)), func(p int) int32 { return int32(p) }))
}

func readerScores(of Scorer, i int, positions []int32) []float64 {
	switch s := of.(type) {
	case *Reader:
		return list.Map(positions, func(p int32) float64 { return math.Log(max(s.weight[i][p], math.SmallestNonzeroFloat64)) })
	case subsetScorer:
		return readerScores(s.inner, s.indices[i], positions)
	case levelScorer:
		return readerScores(s.inner, i, positions)
	case maskedScorer:
		return readerScores(s.set.whole.Scorer, i, s.set.inWhole(i, positions))
	}
	return nil
}

// Reward returns soft(D) of query row i.
func (r *Reader) Reward(i int, positions []int32) float64 {
	weight, acc := r.weight[i], r.acc[i]
	num, den := 0.0, 0.0
	for _, p := range positions {
		num += weight[p] * acc[p]
		den += weight[p]
	}
	return (num + r.weight0[i]*r.prior0[i]) / (den + r.weight0[i])
}

// Score returns soft(D) and the VQA accuracy of the prediction (NaN without texts).
func (r *Reader) Score(i int, positions []int32) (float64, float64) {
	if r.answers == nil {
		return r.Reward(i, positions), math.NaN()
	}
	return r.Reward(i, positions), r.query[i].accuracy[r.predict(i, positions)]
}

// predict returns the index of the answer with the largest mass.
func (r *Reader) predict(i int, positions []int32) int32 {
	type vote struct {
		answer int32
		mass   float64
	}
	var buf [64]vote
	votes := buf[:0]
	add := func(answer int32, mass float64) {
		for k := range votes {
			if votes[k].answer == answer {
				votes[k].mass += mass
				return
			}
		}
		votes = append(votes, vote{answer, mass})
	}
	for _, p := range positions {
		d := r.answers.byRow[r.pools[i][p]]
		for _, a := range d {
			add(a.answer, r.weight[i][p]*float64(a.count)/10)
		}
	}
	q := &r.query[i]
	add(q.top, 0)
	best, bestMass := int32(-1), 0.0
	for _, v := range votes {
		mass := math.RoundToEven((v.mass+r.weight0[i]*r.answers.prior(q.head, v.answer))*1e9) / 1e9
		if best < 0 || mass > bestMass || mass == bestMass && r.answers.names[v.answer] > r.answers.names[best] {
			best, bestMass = v.answer, mass
		}
	}
	return best
}

// withAnswers adds the texts that the accuracy needs; false where a row's answers are unknown.
func (r *Reader) withAnswers(a *answers) bool {
	if a == nil {
		return false
	}
	unknown := func(row int32) bool { return int(row) >= len(a.byRow) || a.byRow[row] == nil }
	query := make([]queryAnswers, len(r.IDs))
	for i, id := range r.IDs {
		if unknown(int32(id)) || slices.ContainsFunc(r.pools[i], unknown) {
			return false
		}
		query[i] = queryAnswers{head: a.headRow[id], top: a.intern(r.top[i]), accuracy: a.accuracies(int(id))}
	}
	r.query, r.answers = query, a
	return true
}

// queryAnswers holds the texts for scoring one query.
type queryAnswers struct {
	head     int32             // of the question: its first two words
	top      int32             // the prior's best answer
	accuracy map[int32]float64 // official VQA accuracy of the answers that humans gave; others 0
}
