package poolfeatures

import (
	"cmp"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/rewardutil/recorded"
)

// similarity is the cosine of query and candidate.
func similarity() Feature {
	return Feature{Name: "similarity", Of: func(p *Pool, _ []int, out []float64) { copy(out, p.similarities()) }}
}

// similarityOfColumns is the cosine of some columns, from FROM up to and without TO, where these mean something by themselves: a
// block of the question, one of the picture.
func similarityOfColumns() Feature {
	return Feature{Name: "similarity_FROM_TO", Block: true, Of: func(p *Pool, args []int, out []float64) {
		from, to := args[0], args[1]
		for j, row := range p.Rows {
			out[j] = recorded.Cosine(p.Query[from:to], row[from:to])
		}
	}}
}

// rank is the logarithm of the candidate's place by similarity, from 1.
func rank() Feature {
	return Feature{Name: "rank", Of: func(p *Pool, _ []int, out []float64) {
		similar, order := p.similarities(), stat.Indices(len(out))
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(similar[b], similar[a]) })
		for place, j := range order {
			out[j] = math.Log(float64(place + 1))
		}
	}}
}

// similarities returns the cosines of the query with its candidates [K], computed once.
func (p *Pool) similarities() []float64 {
	if p.similar == nil {
		p.similar = list.Map(p.Rows, func(row []float32) float64 { return recorded.Cosine(p.Query, row) })
	}
	return p.similar
}

// Nearest returns the position of the candidate most similar to the query.
func (p *Pool) Nearest() int {
	similar := p.similarities()
	return slices.Index(similar, slices.Max(similar))
}
