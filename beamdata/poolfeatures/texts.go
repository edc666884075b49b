package poolfeatures

import (
	"slices"

	"fulcrum/internal/list"
)

// overlaps is the share of words, or tags, that query and candidate have in common, of all that either has.
func overlaps(name string, column Column, of func(*Pool) (own []int32, all [][]int32)) Feature {
	return Feature{Name: name, Reads: []Column{column}, Of: func(p *Pool, _ []int, out []float64) {
		own, all := of(p)
		for j, words := range all {
			out[j] = overlap(own, words)
		}
	}}
}

// answerInTags is the share of a candidate's annotators whose answer is a tag of the query's picture.
func answerInTags() Feature {
	return Feature{Name: "answer_in_tags", Reads: []Column{Answers, Tags}, Of: func(p *Pool, _ []int, out []float64) {
		for j, answers := range p.Answers {
			for _, a := range answers {
				if _, ok := slices.BinarySearch(p.OwnTags, a.Text); ok {
					out[j] += a.Share
				}
			}
		}
	}}
}

// overlap is the number of common entries of two ascending lists over that of all entries.
func overlap(a, b []int32) float64 {
	common := list.Count(a, func(x int32) bool {
		_, ok := slices.BinarySearch(b, x)
		return ok
	})
	return float64(common) / float64(max(len(a)+len(b)-common, 1))
}
