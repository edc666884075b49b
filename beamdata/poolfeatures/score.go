package poolfeatures

// Scores is the column of what a reader gives each candidate without knowing the query's answers.
const Scores Column = "score"

// score is the weight, a logarithm, that the reader of a reward table gives a candidate beside the query: one call a candidate.
func score() Feature {
	return Feature{Name: "score", Reader: true, Reads: []Column{Scores}, Of: func(p *Pool, _ []int, out []float64) { copy(out, p.Scores) }}
}
