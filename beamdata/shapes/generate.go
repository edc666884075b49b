// Package shapes is the built-in data set: small rendered scenes of coloured shapes, questions about
// them with ten simulated human answers each, and everything a selector of in-context examples needs
// to train on them. It is synthetic and says so; what it measures is whether a selector learns, from
// pixels and words, which solved examples help an unseen question.
//
//	d, err := shapes.Generate(shapes.DefaultOptions())
//	q := d.Dev[0]                                   // a held-out question, its pool and reward row
//	text := d.Items[q.Row].Question                 // "how many circles are there?"
//	reward := q.Soft([]int32{3, 7})                 // exact reward of showing pool positions 3 and 7
//
// The recipe is that of open-book beam data: pools of near and random training examples, a copy reader that answers
// with the votes of the examples shown, a beam search under it, and recorded groups for GRPO. No answer enters an
// embedding. The same options give the same bits, however many processors work and whether or not they fuse
// multiplications with additions: features are rounded to a grid, so that cosines are exact integer arithmetic.
//
// The set is made so that similarity is decent and a learned metric better: backgrounds, positions and
// wording dominate the cosine, while the reward follows what is asked and what is drawn.
package shapes

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/parallel"
	"fulcrum/internal/stat"
)

// Dim is the width of the embeddings: question block, then image block.
const Dim = questionDim + imageDim

// questionShare is the question block's part of an embedding's squared length.
const questionShare = 0.5

// Names of the splits. Training questions come first in the table, then val, then dev.
const (
	Train = "train"
	Val   = "val"
	Dev   = "dev"
)

// Item is one question about one scene: a row of the embedding table.
type Item struct {
	Split    string
	Scene    int // no scene is in two splits
	Question string
	Answer   string        // the most frequent one
	Answers  []AnswerCount // all ten, most frequent first
}

// Query is a question with its candidate pool and the reader's table row for it.
type Query struct {
	Row        int32     // of the embedding table
	Pool       []int32   // [K] rows of training questions, none of the query's own scene
	Score      []float64 // [K] s: how much the reader trusts each demonstration
	DemoAcc    []float64 // [K] g: expected VQA accuracy of an answer drawn from its ten
	PriorScore float64   // s0
	PriorAcc   float64   // P0: expected accuracy of the prior alone
	PriorTop   string
	Beams      []Beam   // best first
	Records    []Record // a group for offline GRPO: beams, retrieval, sample, random; distinct as sets
}

type Beam struct {
	Positions []int32 // [Shots] in the pool
	Soft      float64 // its reward
}

type Data struct {
	Options         Options
	Dim             int
	Embeddings      []float32 // [rows, Dim], unit rows
	Items           []Item    // [rows]
	Train, Val, Dev []Query
	Prior           *Prior

	scenes []scene
}

// Generate makes the set. It uses all processors; the result depends on the options only.
func Generate(opt Options) (*Data, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("data.shapes.%w", err)
	}
	d := &Data{Options: opt, Dim: Dim}
	d.Items = makeItems(opt)
	d.scenes = make([]scene, d.Items[len(d.Items)-1].Scene+1)
	each(len(d.scenes), func(i int) { d.scenes[i] = newScene(opt.Seed, i) })
	e := d.embed()
	d.Prior = newPrior(d.Items[opt.TrainQueries:opt.trainRows()])
	first := opt.trainRows()
	d.Train = d.makeQueries(e, 0, opt.TrainQueries)
	d.Val = d.makeQueries(e, first, opt.ValQueries)
	d.Dev = d.makeQueries(e, first+opt.ValQueries, opt.DevQueries)
	return d, nil
}

// grid is the step that embeddings are rounded to. On it a product of two entries is an integer of at
// most 28 bits, so cosines come out the same whatever the order, the processor or its fused operations.
const grid = 1 << 13

// blocks holds the distinct question and image blocks, on the grid, and their cosines: many rows share
// a text or a scene.
type blocks struct {
	question, image       [][]int32   // by text and scene
	questionCos, imageCos [][]float64 // [texts, training texts] and [scenes, training scenes]
	text                  []int32     // [rows] a row's text; training texts come first, as do scenes
}

func (d *Data) embed() *blocks {
	e := &blocks{text: make([]int32, len(d.Items))}
	var texts []string
	var trainTexts, trainScenes int
	index := map[string]int32{}
	train := make([]string, d.Options.trainRows())
	for i, it := range d.Items {
		if _, ok := index[it.Question]; !ok {
			index[it.Question] = int32(len(texts))
			texts = append(texts, it.Question)
		}
		e.text[i] = index[it.Question]
		if i < len(train) {
			train[i], trainTexts, trainScenes = it.Question, len(texts), it.Scene+1
		}
	}
	words, pictures := newTextModel(d.Options.Seed, train), newImageModel(d.Options.Seed)
	e.question, e.image = make([][]int32, len(texts)), make([][]int32, len(d.scenes))
	each(len(texts), func(i int) { e.question[i] = quantise(words.embed(texts[i]), questionShare) })
	each(len(d.scenes), func(i int) { e.image[i] = quantise(pictures.embed(d.scenes[i].render()), 1-questionShare) })
	e.questionCos, e.imageCos = cosineTable(e.question, trainTexts), cosineTable(e.image, trainScenes)
	d.Embeddings = make([]float32, len(d.Items)*Dim)
	for i, it := range d.Items {
		row := d.Embeddings[i*Dim : (i+1)*Dim]
		for k, v := range e.question[e.text[i]] {
			row[k] = float32(v) / grid
		}
		for k, v := range e.image[it.Scene] {
			row[questionDim+k] = float32(v) / grid
		}
	}
	return e
}

// quantise returns the block at its share of the squared length, on the grid.
func quantise(block []float64, share float64) []int32 {
	return list.Map(block, func(v float64) int32 { return int32(math.Round(v * math.Sqrt(share) * grid)) })
}

// cosineTable returns the cosines of all vectors with the first n.
func cosineTable(x [][]int32, n int) [][]float64 {
	norm := list.Map(x, func(v []int32) float64 { return math.Sqrt(float64(dot(v, v))) })
	out := make([][]float64, len(x))
	each(len(x), func(i int) {
		out[i] = make([]float64, n)
		for j := range out[i] {
			out[i][j] = float64(dot(x[i], x[j])) / (norm[i] * norm[j])
		}
	})
	return out
}

func dot(a, b []int32) int32 {
	var s0, s1, s2, s3 int32 // together at most grid², for blocks no longer than 1
	b = b[:len(a)]
	for len(a) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i, v := range a {
		s0 += v * b[i]
	}
	return s0 + s1 + s2 + s3
}

// each calls f(0) to f(n-1) on all processors.
func each(n int, f func(i int)) {
	parallel.Each(context.Background(), n, 0, func(i int) error { f(i); return nil })
}

func (d *Data) makeQueries(e *blocks, first, n int) []Query {
	out := make([]Query, n)
	each(n, func(i int) { out[i] = d.newQuery(e, first+i) })
	return out
}

// newQuery draws the pool of a row, scores it, and searches and records candidates.
func (d *Data) newQuery(e *blocks, row int) Query {
	item := d.Items[row]
	c := d.cosines(e, row)
	q := Query{Row: int32(row), Pool: d.pool(row, c)}
	h := Head(item.Question)
	q.PriorScore = roundTo(priorBase+priorSeen*math.Log(1+d.Prior.seen(h))/5, 4)
	q.PriorAcc = d.Prior.expected(h, item.Answers)
	q.PriorTop = d.Prior.top(h)
	cos := make([]float64, len(q.Pool))
	for p, j := range q.Pool {
		cos[p] = c.whole[j]
		q.Score = append(q.Score, trust(c.question[j], c.image[j], h == Head(d.Items[j].Question)))
		q.DemoAcc = append(q.DemoAcc, demoAccuracy(d.Items[j].Answers, item.Answers))
	}
	q.Beams = q.beamSearch(d.Options.Shots, d.Options.BeamWidth)
	q.Records = d.record(&q, cos)
	return q
}

// cosines of a row with every candidate row.
type cosines struct{ question, image, whole []float64 }

func (d *Data) cosines(e *blocks, row int) cosines {
	n := d.Options.trainRows()
	c := cosines{make([]float64, n), make([]float64, n), make([]float64, n)}
	texts, scenes := e.questionCos[e.text[row]], e.imageCos[d.Items[row].Scene]
	for j := range n {
		c.question[j], c.image[j] = texts[e.text[j]], scenes[d.Items[j].Scene]
		c.whole[j] = float64(questionShare*c.question[j]) + float64((1-questionShare)*c.image[j]) // never fused
	}
	return c
}

// order returns the indices of x from largest to smallest, ties by index.
func order(x []float64) []int32 {
	out := list.Convert[int32](stat.Indices(len(x)))
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(x[b], x[a]) })
	return out
}

// Options sizes the set. The set's seed is apart from a run's seed, so that all runs train on one set.
type Options struct {
	// seed of the set itself, apart from the run's seed
	Seed int64 `koanf:"seed"`
	// questions that train; all are candidates too
	TrainQueries int `koanf:"train_queries" range:"[1,10000000]"`
	// further training questions: candidates and the reader's prior, never queries
	ReaderQuestions int `koanf:"reader_questions" range:"[1,10000000]"`
	// questions that validate, on scenes of their own
	ValQueries int `koanf:"val_queries" range:"[0,10000000]"`
	// held-out questions, on scenes of their own
	DevQueries int `koanf:"dev_queries" range:"[0,10000000]"`
	// candidates per query
	PoolSize int `koanf:"pool_size" range:"[8,inf)"`
	// examples per beam
	Shots int `koanf:"shots" range:"[1,8]"`
	// beams per query, as the published OK-VQA beams have
	BeamWidth int `koanf:"beam_width" range:"[1,inf)" constant:"true"`
}

// DefaultOptions returns the set that exp=okvqa_v3 trains on.
func DefaultOptions() Options {
	return Options{Seed: 2026, TrainQueries: 2400, ReaderQuestions: 300, ValQueries: 300, DevQueries: 900, PoolSize: 32, Shots: 2,
		BeamWidth: 5}
}

// Validate checks what one key alone can't show.
func (o Options) Validate() error {
	most := max(o.TrainQueries+o.ReaderQuestions-questionsPerScene, 0)
	return option.Want(o.PoolSize <= most, "pool_size", "want at most %d (the training questions without a query's own scene), got %d",
		most, o.PoolSize)
}
