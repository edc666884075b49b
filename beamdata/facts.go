package beamdata

import (
	"slices"
	"strings"
	"unicode"

	"fulcrum/beamdata/poolfeatures"
)

// Facts returns what features may read about the rows of the set's table: questions, answers and tags, where a file says so.
func (s *Set) Facts() *poolfeatures.Facts {
	if s.items == nil {
		return &poolfeatures.Facts{}
	}
	if s.items.facts == nil {
		s.items.facts = s.items.asFacts()
	}
	return s.items.facts
}

// asFacts numbers the texts. Equal texts have one number, whether they are answers, tags or words.
func (it *Items) asFacts() *poolfeatures.Facts {
	n := len(it.rows)
	f := &poolfeatures.Facts{File: it.file, Answers: make([][]poolfeatures.Answer, n), Words: make([][]int32, n), Tags: make([][]int32, n)}
	numbers := map[string]int32{}
	number := func(text string) int32 {
		if _, ok := numbers[text]; !ok {
			numbers[text] = int32(len(numbers))
		}
		return numbers[text]
	}
	ascending := func(texts []string) []int32 {
		out := make([]int32, len(texts))
		for i, text := range texts {
			out[i] = number(text)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	for row, x := range it.rows {
		total := 0
		for _, a := range x.counts {
			total += a.Count
		}
		if total > 0 {
			f.Answers[row] = make([]poolfeatures.Answer, len(x.counts))
		}
		for i := range f.Answers[row] {
			f.Answers[row][i] = poolfeatures.Answer{Text: number(x.counts[i].Answer), Share: float64(x.counts[i].Count) / float64(total)}
		}
		if x.question != "" {
			f.Words[row] = ascending(strings.FieldsFunc(strings.ToLower(x.question), func(r rune) bool {
				return !unicode.IsLetter(r) && !unicode.IsDigit(r)
			}))
		}
		if x.tags != nil {
			f.Tags[row] = ascending(x.tags)
		}
	}
	return f
}
