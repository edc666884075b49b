package poolfeatures

import (
	"slices"

	"fulcrum/internal/list"
)

// questionOverlap is the share of words that query and candidate have in common, of all words of both questions.
func questionOverlap() Feature {
	return Feature{Name: "question_overlap", Reads: []Column{Questions}, Of: func(p *Pool, _ []int, out []float64) {
		for j, words := range p.Words {
			out[j] = overlap(p.OwnWords, words)
		}
	}}
}

// tagOverlap is questionOverlap of the tags of both pictures.
func tagOverlap() Feature {
	return Feature{Name: "tag_overlap", Reads: []Column{Tags}, Of: func(p *Pool, _ []int, out []float64) {
		for j, tags := range p.Tags {
			out[j] = overlap(p.OwnTags, tags)
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
