package audit

import (
	"fmt"
	"math"
)

// OwnPools reports how many of the queries looked at are their own candidates: under their id, or as a copy under
// another.
func OwnPools(name string, byID, byCopy, looked int, example int64, lim Limits) []Fault {
	if byID > 0 {
		s := share(byID, looked)
		return []Fault{{Check: "query_in_own_pool", Value: s, Limit: lim.OwnPool, Mild: s < lim.OwnPool,
			Message: fmt.Sprintf("%s stand in their own pool (query %d, for example): choosing itself gives the answer away; leave the query out of its candidates", of(byID, looked, name+" queries"), example)}}
	}
	if byCopy == 0 {
		return nil
	}
	s := share(byCopy, looked)
	f := Fault{Check: "query_in_own_pool", Value: s, Limit: lim.OwnPool, Mild: s < lim.OwnPool,
		Message: fmt.Sprintf("%s have a candidate with the very embedding of the query (query %d, for example)", of(byCopy, looked, name+" queries"), example)}
	if !f.Mild {
		f.Message += ": a copy of the query gives the answer away"
	}
	return []Fault{f}
}

// fewPools is how many queries a verdict on their pools needs.
const fewPools = 64

// Nearness holds the similarity of queries to their own pools against that to the pools of other queries:
// closer[i] is the difference of the two means for query i. A pool that somebody chose for its query is nearer;
// where it is not, the embeddings probably belong to other ids.
func Nearness(name string, closer []float64, lim Limits) []Fault {
	n := float64(len(closer))
	if n < fewPools {
		return nil
	}
	mean, squares := 0.0, 0.0
	for _, d := range closer {
		mean += d / n
	}
	for _, d := range closer {
		squares += (d - mean) * (d - mean) / (n - 1)
	}
	z := mean / math.Max(math.Sqrt(squares/n), 1e-12)
	if z >= lim.Similarity {
		return nil
	}
	return []Fault{{Check: "pool_unlike_query", Value: z, Limit: lim.Similarity, Key: "data.embeddings",
		Message: fmt.Sprintf("%s queries are no nearer to their own pools than to those of others (cosine %+.3g on average over %d queries, %.2g standard errors; want %.2g): the rows of the embedding table do not belong to these ids, or pools were drawn at random", name, mean, len(closer), z, lim.Similarity)}}
}
