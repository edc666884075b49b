package stats

import (
	"cmp"
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// grouping says which questions belong together: those about one image, say. Their scores are not independent, so
// intervals and tests count groups. The zero value makes every question its own group.
type grouping struct {
	of    []int     // [n] group of each question, by first appearance; nil: each is its own
	sizes []float64 // [G] questions of each group
}

// NewGrouping groups n questions by their cluster ids [n]. Without ids, or where no two questions share one, every
// question is its own group.
func NewGrouping(ids []int64) grouping {
	g := grouped(ids)
	if len(g.sizes) == len(ids) {
		return grouping{}
	}
	return g
}

// grouped groups things by their keys.
func grouped[K comparable](keys []K) grouping {
	g := grouping{of: make([]int, len(keys))}
	index := make(map[K]int, len(keys))
	for i, key := range keys {
		at, seen := index[key]
		if !seen {
			at = len(g.sizes)
			index[key] = at
			g.sizes = append(g.sizes, 0)
		}
		g.of[i] = at
		g.sizes[at]++
	}
	return g
}

// Clusters returns the number of groups, 0 where every question is its own.
func (g grouping) Clusters() int { return len(g.sizes) }

// Units returns how many independent units n questions are.
func (g grouping) Units(n int) int {
	if g.of == nil {
		return n
	}
	return len(g.sizes)
}

// Values returns one value for each group [G] from those of its questions [n]. They have the mean of x, and the
// standard error of their mean is the cluster-robust one of the mean of x: m + G/n · Σ (x - m) over the group (Liang
// and Zeger 1986). With groups of equal size they are the groups' means. The map is linear in x.
func (g grouping) Values(x []float64) []float64 {
	if g.of == nil {
		return x
	}
	mean := stat.Mean(x)
	out := g.sums(x)
	for i := range out {
		out[i] = mean + (out[i] - mean*g.sizes[i]*float64(len(out))/float64(len(x)))
	}
	return out
}

// sums returns the sum over each group times G/n: what a sign-flip test turns round as one.
func (g grouping) sums(x []float64) []float64 {
	if g.of == nil {
		return x
	}
	out := make([]float64, len(g.sizes))
	for i, v := range x {
		out[g.of[i]] += v
	}
	for i := range out {
		out[i] *= float64(len(out)) / float64(len(x))
	}
	return out
}

// Rows applies values to each row of scores [S][n].
func (g grouping) Rows(scores [][]float64) [][]float64 {
	if g.of == nil {
		return scores
	}
	return list.Map(scores, g.Values)
}

// MeanSE returns the mean of x and its standard error over groups (NaN for fewer than two).
func (g grouping) MeanSE(x []float64) (mean, se float64) {
	mean, se = stat.MeanSE(x)
	if g.of != nil {
		_, se = stat.MeanSE(g.Values(x))
	}
	return mean, se
}

// NumberedClusters returns the cluster of each query, counted from 0 by first appearance; nil where every query has its
// own. A query of which of knows nothing, or "", has its own.
func NumberedClusters(queryIDs []int64, of map[int64]string) []int64 {
	g := grouped(list.Map(queryIDs, func(id int64) string { return cmp.Or(of[id], fmt.Sprint("\x00", id)) }))
	if len(g.sizes) == len(queryIDs) {
		return nil
	}
	return list.Map(g.of, func(at int) int64 { return int64(at) })
}
