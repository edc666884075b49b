// Package poolfeatures describes each candidate of a query's pool by numbers that need no label: how similar it is to the query, how
// far the others' answers agree with its own, how crowded its place is.
//
//	list, err := poolfeatures.New(poolfeatures.Table(), []string{"similarity", "agreement_20", "chosen_answers"})
//	x := list.Describe(pool)   // [K, columns]: each feature, and its deviation from the pool's mean
//
// A Pool holds the answers of candidates alone, so no feature can read the query's. It knows no rewards, tensors and files.
package poolfeatures

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// Pool is what may be known about a query and its K candidates at test time.
type Pool struct {
	Query   []float32        // embedding row of the query
	Rows    [][]float32      // [K] those of the candidates
	Between func() []float32 // [K, K] cosines of the candidates: dear, so only a feature that reads them asks

	Scores            []float64  // [K] the reader's own; nil: it is not asked
	Answers           [][]Answer // [K]
	Words, Tags       [][]int32  // [K] of the candidates' questions and pictures, ascending
	OwnWords, OwnTags []int32    // those of the query

	similar []float64 // [K], computed once
}

// Feature is an entry: one number for each candidate.
type Feature struct {
	// Name is its name in selector.features. Parts in capitals stand for whole numbers: agreement_SHARPNESS.
	Name string
	// Block says that the two numbers of the name are a range of the embeddings' columns.
	Block bool
	// Reader says that it asks the reader: selector.scorer=true alone adds it.
	Reader bool
	// Reads names the columns of the data that it needs beside the embeddings.
	Reads []Column
	// Of fills out [K] before any choice; args are the whole numbers of the name.
	Of func(p *Pool, args []int, out []float64)
	// Beside is, in place of Of, the number [K] beside a chosen candidate; of several chosen ones the mean counts.
	Beside func(p *Pool, chosen int, out []float64)
}

func Table() []Feature {
	return []Feature{similarity(), similarityOfColumns(), rank(), crowdingMean(), crowdingMax(), agreement(), annotators(),
		overlaps("question_overlap", Questions, func(p *Pool) ([]int32, [][]int32) { return p.OwnWords, p.Words }),
		overlaps("tag_overlap", Tags, func(p *Pool) ([]int32, [][]int32) { return p.OwnTags, p.Tags }),
		answerInTags(), chosenSimilarity(), chosenAnswers(), score()}
}

// Standard is the name that stands for the features that suit the data.
const Standard = "standard"

// Expand returns names with those that suit the data, and are not named beside it, in the place of Standard: suited, or those that need
// no tags and no blocks. Features that read a column of which the data say nothing are left out; facts that are nil say all.
func Expand(names, suited []string, facts *Facts) (taken, left []string) {
	at := slices.Index(names, Standard)
	if at < 0 {
		return names, nil
	}
	if suited == nil {
		suited = []string{"similarity", "rank", "agreement_0", "agreement_10", "agreement_30", "annotators", "crowding_mean", "crowding_max",
			"question_overlap", "chosen_similarity", "chosen_answers"}
	}
	suited = list.Filter(suited, func(name string) bool { return !slices.Contains(names, name) })
	left = list.Filter(suited, facts.lack)
	suited = list.Filter(suited, func(name string) bool { return !slices.Contains(left, name) })
	return slices.Concat(names[:at], suited, names[at+1:]), left
}

// forbidden are names that a reader of beam data may think of, and why no feature has them.
func forbidden() map[string]string {
	const score = "it was computed with the query's answers, which nobody knows at test time"
	return map[string]string{
		"query_answers": "the query's answers are what is asked for", "answer": "the query's answer is what is asked for",
		"demo_acc": score, "prior_expected_acc": score, "prior_score": "it is the reader's own", "vqa_gt_prob": score,
		"vqa_acc_score": score, "beam_score": score, "reward": score,
		"score": "it is the reader's own weight of a candidate: a selector that reads it is no longer one without the reader, " +
			"and selector.scorer=true asks for it",
	}
}

type List struct {
	static, beside []chosen
}

type chosen struct {
	Feature
	name string
	args []int
}

// New returns the features called names, in their order.
func New(table []Feature, names []string) (*List, error) {
	l := &List{}
	for i, name := range names {
		if why, ok := forbidden()[name]; ok {
			return nil, fmt.Errorf("%s is no feature: %s", name, why)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%s stands there twice", name)
		}
		f, err := find(table, name)
		if err != nil {
			return nil, err
		}
		if f.Beside != nil {
			l.beside = append(l.beside, f)
		} else {
			l.static = append(l.static, f)
		}
	}
	if len(l.static) == 0 && len(names) > 0 {
		return nil, fmt.Errorf("%s says nothing before the first choice: want another feature with it", names[0])
	}
	return l, nil
}

// AddReader adds the features that ask the reader.
func (l *List) AddReader(table []Feature) {
	for _, f := range table {
		if f.Reader {
			l.static = append(l.static, chosen{f, f.Name, nil})
		}
	}
}

// Asks reports whether feature i, by Names, asks the reader.
func (l *List) Asks(i int) bool { return l.static[i].Reader }

// Fits returns an error where a feature reads columns that embeddings of so many do not have.
func (l *List) Fits(columns int) error {
	for _, f := range l.static {
		if f.Block && (f.args[0] >= f.args[1] || f.args[1] > columns) {
			return fmt.Errorf("selector.features: %s reads columns %d to %d of the embeddings: want FROM < TO ≤ %d, TO is left out", f.name,
				f.args[0], f.args[1], columns)
		}
	}
	return nil
}

// find returns the entry that name, with its whole numbers, stands for.
func find(table []Feature, name string) (chosen, error) {
	table = slices.DeleteFunc(slices.Clone(table), func(f Feature) bool { return f.Reader })
	names := make([]string, len(table))
	for i, f := range table {
		names[i] = f.Name
		if args, ok := match(f.Name, name); ok {
			return chosen{f, name, args}, nil
		}
	}
	return chosen{}, registry.Unknown("feature", name, names)
}

// match reports whether name is an entry's name with whole numbers in place of the parts in capitals.
func match(entry, name string) (args []int, ok bool) {
	want, got := strings.Split(entry, "_"), strings.Split(name, "_")
	if len(want) != len(got) {
		return nil, false
	}
	for i, part := range want {
		if part != strings.ToUpper(part) {
			if part != got[i] {
				return nil, false
			}
			continue
		}
		n, err := strconv.Atoi(got[i])
		if err != nil || n < 0 || strconv.Itoa(n) != got[i] {
			return nil, false
		}
		args = append(args, n)
	}
	return args, true
}

// Columns returns how many numbers Describe gives each candidate: two a feature.
func (l *List) Columns() int { return 2 * len(l.static) }

// BesideColumns returns how many numbers Beside gives each candidate.
func (l *List) BesideColumns() int { return len(l.beside) }

// Names returns the features that Describe computes, in the order of its columns.
func (l *List) Names() []string { return list.Map(l.static, func(f chosen) string { return f.name }) }

// Describe returns the numbers [K, Columns] of a pool: of each feature its value, then the value's deviation from the pool's mean.
func (l *List) Describe(p *Pool) []float64 {
	k, c := len(p.Rows), l.Columns()
	out, column := make([]float64, k*c), make([]float64, k)
	for i, f := range l.static {
		clear(column)
		f.Of(p, f.args, column)
		mean := list.Sum(column, func(v float64) float64 { return v / float64(k) })
		for j, v := range column {
			out[j*c+2*i], out[j*c+2*i+1] = v, v-mean
		}
	}
	return out
}

// Beside returns the numbers [K, BesideColumns] of a pool beside a chosen candidate.
func (l *List) Beside(p *Pool, chosen int) []float64 {
	k, c := len(p.Rows), l.BesideColumns()
	out, column := make([]float64, k*c), make([]float64, k)
	for i, f := range l.beside {
		clear(column)
		f.Beside(p, chosen, column)
		for j, v := range column {
			out[j*c+i] = v
		}
	}
	return out
}

// Scaling brings the columns of Describe, then those of Beside, to mean 0 and deviation 1 on the rows that it was measured on.
type Scaling struct {
	Mean, Scale []float64

	n, sum, squares []float64 // while it is measured
}

// Add takes rows [n, columns] that start at a column into the account.
func (s *Scaling) Add(rows []float64, columns, from int) {
	for i, v := range rows {
		c := from + i%columns
		for len(s.n) <= c {
			s.n, s.sum, s.squares = append(s.n, 0), append(s.sum, 0), append(s.squares, 0)
		}
		s.n[c]++
		s.sum[c] += v
		s.squares[c] += v * v
	}
}

// Measured sets Mean and Scale. A column that hardly varies is only moved.
func (s *Scaling) Measured() {
	for c, n := range s.n {
		mean := s.sum[c] / n
		scale := math.Sqrt(max(s.squares[c]/n-mean*mean, 0))
		if scale < 1e-6 {
			scale = 1
		}
		s.Mean, s.Scale = append(s.Mean, mean), append(s.Scale, scale)
	}
}

// Apply scales rows [n, columns] that start at a column, as float32.
func (s *Scaling) Apply(rows []float64, columns, from int) []float32 {
	out := make([]float32, len(rows))
	for i, v := range rows {
		c := from + i%columns
		out[i] = float32((v - s.Mean[c]) / s.Scale[c])
	}
	return out
}
