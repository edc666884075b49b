package poolfeatures

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"fulcrum/internal/list"
)

// Column is a column of the data, by its name there.
type Column string

// The columns that features read.
const (
	Answers   Column = "answer_counts"
	Questions Column = "question"
	Tags      Column = "tags"
)

// Answer is the share of a row's annotators who gave an answer.
type Answer struct {
	Text  int32
	Share float64
}

// Facts is what the data say about the rows of the embedding table. Texts are numbers, equal for equal texts; a row that is
// nil is not known.
type Facts struct {
	File        string // that says so; "" = there is none
	Answers     [][]Answer
	Words, Tags [][]int32

	numbers map[string]int32
}

// Add appends what is known about the next row; of its answers how many annotators gave each. Nothing, or tags that are nil, is not
// known. Equal texts have one number, whether they are answers, tags or words.
func (f *Facts) Add(question string, answers int, answer func(i int) (text string, count int), tags []string) {
	total := 0
	for i := range answers {
		_, n := answer(i)
		total += n
	}
	var shares []Answer
	for i := 0; i < answers && total > 0; i++ {
		text, n := answer(i)
		shares = append(shares, Answer{Text: f.number(text), Share: float64(n) / float64(total)})
	}
	var words []string
	if question != "" {
		words = strings.FieldsFunc(strings.ToLower(question), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	}
	f.Answers, f.Words, f.Tags = append(f.Answers, shares), append(f.Words, f.ascending(words)), append(f.Tags, f.ascending(tags))
}

// ascending returns the numbers of texts; nil of nil.
func (f *Facts) ascending(texts []string) []int32 {
	if texts == nil {
		return nil
	}
	out := list.Map(texts, f.number)
	slices.Sort(out)
	return slices.Compact(out)
}

func (f *Facts) number(text string) int32 {
	if f.numbers == nil {
		f.numbers = map[string]int32{}
	}
	if _, ok := f.numbers[text]; !ok {
		f.numbers[text] = int32(len(f.numbers))
	}
	return f.numbers[text]
}

// lack reports whether a feature, by name, reads a column of which nothing is known.
func (f *Facts) lack(name string) bool {
	of, err := find(Table(), name)
	return f != nil && err == nil && slices.ContainsFunc(of.Reads, func(c Column) bool {
		return c == Answers && empty(f.Answers) || c == Questions && empty(f.Words) || c == Tags && empty(f.Tags)
	})
}

// empty reports whether a column knows no row.
func empty[T any](column [][]T) bool {
	return !slices.ContainsFunc(column, func(x []T) bool { return x != nil })
}

// Missing returns an error where the data do not say what the features read about a query and its candidates, or would say the answers
// of the query, as one of them.
func (l *List) Missing(f *Facts, query int32, pool []int32) error {
	for _, of := range slices.Concat(l.static, l.beside) {
		for _, column := range of.Reads {
			row, lacks := int32(0), false
			switch column {
			case Answers:
				if slices.Contains(pool, query) {
					return fmt.Errorf("selector.features: query %d stands in its own pool, where %s would read its answers: leave it out of its "+
						"candidates (data.legacy_pool=full_table does not)", query, of.name)
				}
				row, lacks = unknown(f.Answers, pool)
			case Questions:
				row, lacks = unknown(f.Words, append(slices.Clone(pool), query))
			case Tags:
				row, lacks = unknown(f.Tags, append(slices.Clone(pool), query))
			}
			switch {
			case lacks && f.File == "":
				return fmt.Errorf("selector.features: %s reads %s, and the data have no items.jsonl: put one beside the other files, with a "+
					"line {\"idx\": ROW, \"%s\": …} for each row of data.embeddings", of.name, column, column)
			case lacks:
				return fmt.Errorf("selector.features: %s reads %s, and %s has none for row %d (candidates and queries need one, idx is the "+
					"row of data.embeddings)", of.name, column, f.File, row)
			}
		}
	}
	return nil
}

// unknown returns the first of rows that a column does not know.
func unknown[T any](column [][]T, rows []int32) (int32, bool) {
	for _, row := range rows {
		if int(row) >= len(column) || column[row] == nil {
			return row, true
		}
	}
	return 0, false
}

// Of returns the pool of a query with what is known about its candidates; of the query itself, its question and tags.
func (f *Facts) Of(query int32, pool []int32, row func(int) []float32) *Pool {
	p := &Pool{Query: row(int(query)), Rows: list.Map(pool, func(r int32) []float32 { return row(int(r)) })}
	p.Answers, p.Words, p.Tags = at(f.Answers, pool), at(f.Words, pool), at(f.Tags, pool)
	p.OwnWords, p.OwnTags = at(f.Words, []int32{query})[0], at(f.Tags, []int32{query})[0]
	return p
}

// at returns the entries of rows; nil where there is none.
func at[T any](column [][]T, rows []int32) [][]T {
	out := make([][]T, len(rows))
	for i, row := range rows {
		if int(row) < len(column) {
			out[i] = column[row]
		}
	}
	return out
}
