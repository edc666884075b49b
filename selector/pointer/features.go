package pointer

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"fulcrum/beamdata"
	"fulcrum/beamdata/poolfeatures"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
)

// FeatureOptions scores candidates by numbers that need no label (package poolfeatures), through a small network:
//
//	f_j = o · gelu(A x_j + a)                  before the first choice; x_j: features and their deviations from the pool's mean
//	f_j = o · gelu(A x_j + a + C h_j + c)      later; h_j: features beside the chosen examples, their mean over these
//
// x and h are scaled to mean 0 and deviation 1 on training rows. o starts at 0: the untrained selector is the one without features.
type FeatureOptions struct {
	// label-free numbers of each candidate (data.md); standard: what suits the data
	Names []string `koanf:"features"`
	// the reader's score of each candidate too: a call each, whenever it selects
	Scorer bool `koanf:"scorer" when:"features"`
	// hidden width of their network
	Dim int `koanf:"features_dim" range:"[1,inf)" constant:"true"`

	// Scaling is measured on training rows (Measure), or a checkpoint's.
	Scaling poolfeatures.Scaling `koanf:"-"`
}

func (o FeatureOptions) enabled() bool { return len(o.Names) > 0 }

func (o FeatureOptions) validate() error {
	names, _ := poolfeatures.Expand(o.Names, nil, nil)
	if _, err := poolfeatures.New(poolfeatures.Table(), names); err != nil {
		return option.Errorf("features", "%v", err)
	}
	return option.Want(!o.Scorer || o.enabled(), "scorer", "want selector.features beside it (selector=features)")
}

// scaled refuses a scaling that does not fit the features.
func (o FeatureOptions) scaled() error {
	if !o.enabled() {
		return nil
	}
	l, s := o.list(), o.Scaling
	n := l.Columns() + l.BesideColumns()
	if len(s.Mean) != n || len(s.Scale) != n || slices.ContainsFunc(s.Scale, func(x float64) bool { return x <= 0 }) { // JSON is finite
		return fmt.Errorf("selector.features: %d means and %d scales, want %d of each, the scales above 0: the features of training rows "+
			"have not been measured, or the checkpoint is damaged", len(s.Mean), len(s.Scale), n)
	}
	return nil
}

// list returns the features; Validate has looked at the names.
func (o FeatureOptions) list() *poolfeatures.List {
	l, err := poolfeatures.New(poolfeatures.Table(), o.Names)
	if err != nil {
		panic(err)
	}
	if o.Scorer {
		l.AddReader(poolfeatures.Table())
	}
	return l
}

// keys are the metadata of a checkpoint with features: names in order, and scaling.
func (o *FeatureOptions) keys() []key {
	return []key{{"features", &o.Names}, {"scorer", &o.Scorer}, {"features_dim", &o.Dim}, {"features_mean", &o.Scaling.Mean},
		{"features_scale", &o.Scaling.Scale}}
}

func (o FeatureOptions) weights() []weight {
	if !o.enabled() {
		return nil
	}
	l := o.list()
	in := func(n int) start { return uniform(math.Sqrt(3 / float64(n))) } // inputs have deviation 1, and so have the sums
	w := linearWeights("features.in.", l.Columns(), o.Dim, in(l.Columns()))
	if n := l.BesideColumns(); n > 0 {
		w = append(w, linearWeights("features.chosen.", n, o.Dim, in(n))...)
	}
	return append(w, weight{name: "features.out.weight", shape: []int{1, o.Dim}, start: zeros})
}

// Measure sets the scaling from pools of a training set. Beside-features are measured beside the most similar candidate.
func (o *FeatureOptions) Measure(set *beamdata.Set) error {
	const most = 1000 // pools, evenly spread
	l, s := o.list(), poolfeatures.Scaling{}
	if err := l.Fits(set.Table.Dim); err != nil {
		return err
	}
	for _, q := range beamdata.Spread(most, set.Len()) {
		pool, err := poolOf(l, set, q)
		if err != nil {
			return err
		}
		s.Add(l.Describe(pool), l.Columns(), 0)
		if len(pool.Rows) > 0 {
			s.Add(l.Beside(pool, pool.Nearest()), l.BesideColumns(), l.Columns())
		}
	}
	s.Measured()
	o.Scaling = s
	return nil
}

// poolOf returns what the features read about query q of a set.
func poolOf(l *poolfeatures.List, set *beamdata.Set, q int) (*poolfeatures.Pool, error) {
	facts, rows := set.Facts(), set.Pool(q)
	if err := l.Missing(facts, set.Row(q), rows); err != nil {
		return nil, err
	}
	p := facts.Of(set.Row(q), rows, set.Table.Row)
	if l.Asks(l.Columns()/2 - 1) {
		if p.Scores = set.ReaderScores(q); p.Scores == nil {
			return nil, fmt.Errorf("selector.scorer=true: no reward table has a score of the candidates of query %d", set.IDs[q])
		}
	}
	p.Between = sync.OnceValue(func() []float32 { return between(set, rows) })
	return p, nil
}

// between returns the cosines [K, K] of rows of the set's table.
func between(set *beamdata.Set, rows []int32) []float32 {
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	data := make([]float32, 0, len(rows)*set.Table.Dim)
	for _, row := range rows {
		data = append(data, set.Table.Row(int(row))...)
	}
	x := torchx.Normalize(torchx.From(data, len(rows), set.Table.Dim)) // [K, d]
	return slices.Clone(torchx.Data[float32](products(x, x)))
}

// Described returns the features of the pool of query q, each with its values [K]. Their deviations from the pool's mean order it alike.
// What the reader itself says is left out: that it predicts rewards is no leak.
func (p *Policy) Described(set *beamdata.Set, q int) (names []string, values [][]float64, err error) {
	if p.features == nil {
		return nil, nil, nil
	}
	pool, err := poolOf(p.features, set, q)
	if err != nil {
		return nil, nil, err
	}
	x, width := p.features.Describe(pool), p.features.Columns()
	for i, name := range p.features.Names() {
		if p.features.Asks(i) {
			continue
		}
		var column []float64
		for at := 2 * i; at < len(x); at += width {
			column = append(column, x[at])
		}
		names, values = append(names, name), append(values, column)
	}
	return names, values, nil
}

// poolKey finds the scaled features of pools, each computed once. A query has several pools where held-out rows leave its own.
type poolKey struct {
	table *beamdata.Table
	query int64
}

type description struct {
	pool   []int32
	x      []float32           // [K, columns]
	beside map[int64][]float32 // by chosen position: [K, columns beside]
}

// Readable returns an error where the data do not say what the features read.
func (p *Policy) Readable(set *beamdata.Set) error {
	if p.features == nil || set.Len() == 0 {
		return nil
	}
	l, facts := p.features, set.Facts()
	for q := range set.Len() {
		if err := l.Missing(facts, set.Row(q), set.Pool(q)); err != nil {
			return err
		}
	}
	return nil
}

// describe returns the features of query q of a source beside the chosen positions (none: nil).
func (p *Policy) describe(src *Source, q int, chosen []int64) (x []float32, beside [][]float32) {
	p.tables.mu.Lock()
	defer p.tables.mu.Unlock()
	key, rows := poolKey{src.set.Table, src.ID(q)}, src.set.Pool(q)
	var of *description
	for _, known := range p.tables.known[key] {
		if slices.Equal(known.pool, rows) {
			of = known
		}
	}
	l, scaling := p.features, p.opt.Features.Scaling
	var pool *poolfeatures.Pool
	read := func() {
		if pool != nil {
			return
		}
		var err error
		if pool, err = poolOf(l, src.set, q); err != nil {
			panic(&torchx.OpError{Op: "pointer.features", Msg: err.Error()})
		}
	}
	if of == nil {
		read()
		of = &description{pool: rows, x: scaling.Apply(l.Describe(pool), l.Columns(), 0), beside: map[int64][]float32{}}
		p.tables.known[key] = append(p.tables.known[key], of)
	}
	for _, c := range chosen {
		if of.beside[c] == nil {
			read()
			of.beside[c] = scaling.Apply(l.Beside(pool, int(c)), l.BesideColumns(), l.Columns())
		}
		beside = append(beside, of.beside[c])
	}
	return of.x, beside
}

// stageFeatures puts the features of the batch's pools on their way to the device.
func (p *Policy) stageFeatures(in *inputs, up *torchx.Upload) {
	if p.features == nil {
		return
	}
	c := p.features.Columns()
	x := make([]float32, in.b*in.k*c)
	for i, q := range in.queries {
		own, _ := p.describe(in.src, q, nil)
		copy(x[i*in.k*c:], own)
	}
	torchx.Put(up, &in.features, x, in.b, in.k, c)
}

// stageBeside puts what the candidates are beside the choices of n selections [B, n, T] on its way, for all steps but the last.
func (p *Policy) stageBeside(in *inputs, actions []int64, n int, up *torchx.Upload) {
	if p.features == nil || p.features.BesideColumns() == 0 || in.t < 2 {
		return
	}
	in.beside = make([]torchx.Tensor, in.t-1)
	for t := range in.beside {
		positions := list.Make(in.b*n, func(at int) int64 { return max(actions[at*in.t+t], 0) }) // nothing reads what follows a Stop
		torchx.Put(up, &in.beside[t], p.besideOf(in, positions), in.b, n, in.k, p.features.BesideColumns())
	}
}

// besideOf returns what the candidates are beside positions [B, N] of their pools: [B, N, K, columns].
func (p *Policy) besideOf(in *inputs, positions []int64) []float32 {
	c, n := p.features.BesideColumns(), len(positions)/in.b
	out := make([]float32, 0, len(positions)*in.k*c)
	for i, q := range in.queries {
		own := slices.Clone(positions[i*n : (i+1)*n])
		for j, at := range own {
			own[j] = min(at, int64(len(in.pools[i])-1)) // padding of a pool with nothing left
		}
		_, rows := p.describe(in.src, q, own)
		for _, row := range rows {
			out = append(out, row...)
			out = append(out, make([]float32, in.k*c-len(row))...)
		}
	}
	return out
}

// besideChosen returns the features beside the choice number step [B, N, K, columns], staged or read back.
func (p *Policy) besideChosen(in *inputs, step int, position torchx.Tensor) torchx.Tensor {
	if in.beside != nil {
		return in.beside[step].To(p.dtype)
	}
	shape := position.Shape()
	values := p.besideOf(in, torchx.Data[int64](position)) // sync
	return p.move(torchx.From(values, shape[0], shape[1], in.k, p.features.BesideColumns())).To(p.dtype)
}

// featureScores scores the pool by its features before each cursor's choice: [B, 1, K] if no choice changes them, else
// [B, N, K] a cursor.
func (p *Policy) featureScores(e encoded, cursors []cursor) []torchx.Tensor {
	out := func(h torchx.Tensor) torchx.Tensor { // [B, N, K, m] → [B, N, K]
		return torchx.Squeeze(torchx.Linear(torchx.GELU(h), p.params.Get("features.out.weight"), torchx.Tensor{}), 3)
	}
	if p.features.BesideColumns() == 0 {
		cursors = cursors[:1]
	}
	scores := make([]torchx.Tensor, len(cursors))
	for i, c := range cursors {
		if c.beside.Nil() {
			scores[i] = out(e.described)
			continue
		}
		mean := torchx.Scale(c.beside, 1/float64(c.step)) // [B, N, K, columns]
		h := torchx.Linear(mean, p.params.Get("features.chosen.weight"), p.params.Get("features.chosen.bias"))
		scores[i] = out(torchx.Add(h, e.described))
	}
	return scores
}
