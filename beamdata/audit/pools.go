package audit

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

const (
	// OwnPool is the share of queries that are their own candidates from which choosing oneself pays: a slip or two does not.
	OwnPool = 0.02
	// IdenticalCandidates is the share of a pool's candidates that are copies from which choosing gets noisy; a twentieth is a note.
	IdenticalCandidates = 0.1
	// SamePictures is the share of samples with the same pictures that no set of questions about pictures has: half of them.
	SamePictures = 0.5
	// PoolUnlike is how many standard errors a chosen pool is nearer to its query at least: three are no chance.
	PoolUnlike = 3.0
)

// OwnPools reports how many of the queries looked at are their own candidates: under their id, or as a copy under
// another.
func OwnPools(name string, byID, byCopy, looked int, example int64) []Fault {
	if byID > 0 {
		s := share(byID, looked)
		return []Fault{{Check: "query_in_own_pool", Value: s, Limit: OwnPool, Mild: s < OwnPool,
			Message: fmt.Sprintf("%s stand in their own pool (query %d, for example): choosing itself gives the answer away; "+
				"leave the query out of its candidates", of(byID, looked, name+" queries"), example)}}
	}
	if byCopy == 0 {
		return nil
	}
	return []Fault{graded("query_in_own_pool", share(byCopy, looked), OwnPool,
		fmt.Sprintf("%s have a candidate with the very embedding of the query (query %d, for example)",
			of(byCopy, looked, name+" queries"), example),
		"a copy of the query gives the answer away")}
}

// HeldOut reports how many of the training queries looked at have candidates that are held-out questions, or are about the
// image of one.
func HeldOut(with, looked int, example int64) []Fault {
	if with == 0 {
		return nil
	}
	return []Fault{{Check: "held_out_in_pools", Value: share(with, looked), Key: "data.pool.held_out",
		Message: fmt.Sprintf("%s have held-out questions, or questions about their images, among their candidates (query %d, for "+
			"example): a pair of questions that validates is trained on in reverse, and validation flatters; data.pool.held_out=drop leaves "+
			"them out", of(with, looked, "training queries"), example)}}
}

// Identical reports how many candidates of the pools looked at have the very embedding of another candidate there: a
// policy cannot tell them apart.
func Identical(name string, copies, looked int, example int64) []Fault {
	s := share(copies, looked)
	if copies == 0 || s < IdenticalCandidates/20 {
		return nil
	}
	f := graded("identical_candidates", s, IdenticalCandidates,
		fmt.Sprintf("%s have the very embedding of another candidate of their pool (row %d, for example)",
			of(copies, looked, "candidates of "+name), example),
		"the policy cannot tell them apart; rows of the embedding table are copies or constant")
	f.Key = "data.embeddings"
	return []Fault{f}
}

// fewPictures is the number of samples with pictures that a verdict on them needs.
const fewPictures = 8

// Pictures reports that most samples of a split show the same pictures, by what names them.
func Pictures(s Split) []Fault {
	counts, with, most, example := map[uint64]int{}, 0, 0, Query{}
	for _, q := range s.Of {
		if q.Group == 0 {
			continue
		}
		with++
		if counts[q.Group]++; counts[q.Group] > most {
			most, example = counts[q.Group], q
		}
	}
	return SharedPictures(s.description(), most, with, fmt.Sprintf("query %v, for example", example))
}

// SharedPictures reports that most of the samples looked at show the same picture.
func SharedPictures(name string, most, looked int, example string) []Fault {
	if looked < fewPictures || share(most, looked) <= SamePictures {
		return nil
	}
	return []Fault{{Check: "shared_pictures", Value: share(most, looked), Limit: SamePictures,
		Message: fmt.Sprintf("%s show the same pictures (%s): questions cannot be told apart by them; the paths of the "+
			"records, or the files, are copies of one", of(most, looked, name), example)}}
}

// Drawn reports whether pools of rows of a table share as many candidates as pools drawn at random do: of chosen ones some pairs share
// many and most share none, so that the numbers spread more than chance makes them.
func Drawn(pools [][]int32, rows int) bool {
	const enough, spread = 50, 1.5 // shared candidates that are worth a verdict, and variance over mean
	last := make([]int, rows)
	n, sum, squares := 0.0, 0.0, 0.0
	for i, pool := range pools {
		for _, row := range pool {
			last[row] = i + 1
		}
		for _, other := range pools[:i] {
			shared := float64(list.Count(other, func(row int32) bool { return last[row] == i+1 }))
			n, sum, squares = n+1, sum+shared, squares+shared*shared
		}
	}
	mean := sum / n
	return sum >= enough && squares/n-mean*mean <= spread*mean
}

// Once leaves out all faults of a check but the first.
func Once(faults []Fault, check string) []Fault {
	seen := false
	return slices.DeleteFunc(faults, func(f Fault) bool {
		again := f.Check == check && seen
		seen = seen || f.Check == check
		return again
	})
}

// fewPools is the number of queries that a verdict on their pools needs.
const fewPools = 64

// Nearness holds the similarity of queries to their own pools against that to the pools of other queries:
// closer[i] is the difference of the two means for query i. A pool chosen for its query is nearer; if it is not,
// the embeddings probably belong to other ids.
func Nearness(name string, closer []float64) []Fault {
	if len(closer) < fewPools {
		return nil
	}
	mean, se := stat.MeanSE(closer)
	z := mean / math.Max(se, 1e-12)
	if z >= PoolUnlike {
		return nil
	}
	return []Fault{{Check: "pool_unlike_query", Value: z, Limit: PoolUnlike, Key: "data.embeddings",
		Message: fmt.Sprintf("%s queries are no nearer to their own pools than to those of others (cosine %+.3g on average "+
			"over %d queries, %.2g standard errors; want %.2g): the rows of the embedding table do not belong to these ids; "+
			"where pools were drawn without a look at their queries, checks.off=[pool_unlike_query]",
			name, mean, len(closer), z, PoolUnlike)}}
}
