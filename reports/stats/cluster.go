package stats

import (
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
	g := grouping{of: make([]int, len(ids))}
	index := make(map[int64]int, len(ids))
	for i, id := range ids {
		at, seen := index[id]
		if !seen {
			at = len(g.sizes)
			index[id] = at
			g.sizes = append(g.sizes, 0)
		}
		g.of[i] = at
		g.sizes[at]++
	}
	if len(g.sizes) == len(ids) {
		return grouping{}
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
	out := make([]int64, len(queryIDs))
	index := make(map[string]int64, len(queryIDs))
	for i, id := range queryIDs {
		name := of[id]
		if name == "" {
			name = fmt.Sprint("\x00", id)
		}
		at, seen := index[name]
		if !seen {
			at = int64(len(index))
			index[name] = at
		}
		out[i] = at
	}
	if len(index) == len(queryIDs) {
		return nil
	}
	return out
}
