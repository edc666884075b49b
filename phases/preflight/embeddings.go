package preflight

import (
	"fmt"
	"math"

	"fulcrum/internal/stat"
	"fulcrum/phases/doctor"
)

// Similarity is what the similarity of examples to their query is worth on a set, query by query.
type Similarity struct {
	Name    string    // of the set
	Pairs   []float64 // share of a query's pairs of recorded candidates with different rewards that similarity orders rightly
	Similar []float64 // what the most similar examples earn, or the most similar recorded candidate
	Random  []float64 // what random ones earn
}

const (
	// enoughQueries show a pair accuracy with a standard error of .02 to .03, so that a table with some use is seen to have it.
	enoughQueries = 200
	// chance is how many standard errors a number may lie from that of a table that says nothing: one number in twenty lies farther.
	chance = 2.0
)

// Embeddings stops a run whose embeddings say nothing of the rewards: rows in another order than the ids leave a similarity that orders
// half of the pairs rightly and earns what random examples earn. A table that is only of little use fails one of the two tests.
func (r *Report) Embeddings(s Similarity) {
	if len(s.Pairs) < enoughQueries {
		return
	}
	r.checks++
	pairs, noise := stat.MeanSE(s.Pairs)
	ahead := make([]float64, len(s.Similar))
	for i, x := range s.Similar {
		ahead[i] = x - s.Random[i]
	}
	gain, error := stat.MeanSE(ahead)
	similar, random := stat.Mean(s.Similar), stat.Mean(s.Random)
	r.Saw(Name, "embeddings_unrelated", "similarity orders %.3g of the pairs of %d queries of %s rightly and earns %.4g, random choices %.4g",
		pairs, len(s.Pairs), s.Name, similar, random)
	if math.Abs(pairs-0.5) > chance*noise || gain > chance*error {
		return
	}
	const name = "embeddings_unrelated"
	r.add(Name, doctor.Stop, doctor.Finding{Check: name, Key: "data.embeddings", Value: pairs, Limit: 0.5 + chance*noise,
		Message: fmt.Sprintf("similarity to the query orders %.3g of the pairs of candidates of %d queries of %s rightly (chance: 0.5 ± %.2g) "+
			"and earns %.4g, random choices %.4g: the rows of data.embeddings are in another order than the ids, or say nothing of this task; "+
			"where they are meant to, go on with checks: {severity: {%s: note}}", pairs, len(s.Pairs), s.Name, chance*noise, similar, random,
			name)})
}
