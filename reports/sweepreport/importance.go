package sweepreport

import (
	"fmt"
	"math"
	"slices"
	"strings"

	gonum "gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// importance is how much of the differences between jobs one swept key explains alone.
type importance struct {
	dim    sweeps.Dimension
	groups int     // values of a grid, or quarters of an interval
	n      int     // jobs that have the key and a result
	share  float64 // η² of the objective's ranks: between groups over all, in [0, 1]
	chance float64 // the share that a key without effect exceeds in 1 of 20 sweeps
	rank   float64 // Spearman's correlation of the value with the objective; NaN for words
	best   string  // the group with the best mean rank; "–" where two share it
}

const (
	minImportanceJobs = 8 // fewer jobs say nothing about a key
	intervalGroups    = 4 // an interval is cut into quarters of its jobs
)

// importances returns a row for every swept key over feasible and infeasible results, largest share
// first; nil when there are too few jobs. The share is Kruskal and Wallis's (1952): H/(n−1), the η²
// of ranks, which a few diverged jobs cannot dominate. Quarters of an interval instead of its values
// also find an optimum in the middle, where a correlation is 0.
func (v *View) importances(objective int) []importance {
	var out []importance
	for _, dim := range v.Dims {
		if dim.Key == sweeps.ArmKey { // what the arms are worth was asked
			continue
		}
		axis := newSweepAxis(dim, v.ByNumber)
		var x, y []float64
		for _, j := range v.Jobs {
			if u, ok := axis.at(j.Params); ok && v.HasResult(j) && sweeps.Finite(j.Objectives[objective]) {
				x, y = append(x, u), append(y, j.Objectives[objective])
			}
		}
		row := importance{dim: dim, n: len(x), rank: math.NaN()}
		if row.n < minImportanceJobs {
			continue
		}
		group := axis.groups(x)
		row.groups = slices.Max(group) + 1
		if row.groups < 2 || row.groups > row.n/2 || slices.Min(y) == slices.Max(y) {
			continue // one value, or nearly as many as jobs
		}
		ranks := stat.Ranks(y)
		var means []float64
		row.share, means = explained(ranks, group, row.groups)
		row.chance = chanceShare(row.groups, row.n)
		if axis.ordered {
			row.rank = gonum.Correlation(stat.Ranks(x), ranks, nil) // NaN where all values are equal
		}
		order := stat.Indices(len(means))
		slices.SortStableFunc(order, func(a, b int) int { return v.Opt.Objectives[objective].Compare(means[a], means[b]) })
		if row.best = "–"; means[order[0]] != means[order[1]] {
			row.best = axis.groupName(x, group, order[0])
		}
		out = append(out, row)
	}
	slices.SortStableFunc(out, func(a, b importance) int { return sweeps.Objective{}.Compare(a.share, b.share) })
	return out
}

// importanceOrder ranks the swept keys for sorting: the most important is the least, keys without a row are 0.
func (v *View) importanceOrder() map[string]int {
	order := map[string]int{}
	for i, row := range v.importances(0) {
		order[row.dim.Key] = i - len(v.Dims)
	}
	return order
}

func (v *View) writeImportance(d *page.Document) {
	first := true
	for i, o := range v.Opt.Objectives {
		rows := v.importances(i)
		if len(rows) == 0 {
			continue
		}
		if first {
			d.Heading(2, "Which keys matter")
			d.Paragraph("How much of the differences in the jobs' ranks each key explains by itself (η² of ranks, Kruskal and Wallis " +
				"1952): 0%% is nothing, 100%% all. A grid counts by its values, an interval by quarters of its jobs. A key without any " +
				"effect stays below the column “by chance” in 19 of 20 sweeps; shares above it are bold. The rank correlation " +
				"(Spearman) has the sign of the direction: + where larger values of the key go with larger ones of the objective.")
			first = false
		}
		if len(v.Opt.Objectives) > 1 {
			d.Heading(3, "%s", page.Plain(o.Name))
		}
		var cells [][]string
		for _, r := range rows {
			share := page.Percent(r.share)
			if r.share > r.chance {
				share = "**" + share + "**"
			}
			rank := "–"
			if sweeps.Finite(r.rank) {
				rank = page.Fixed(r.rank, 2)
			}
			cells = append(cells, []string{strings.ReplaceAll(page.InlineCode(r.dim.Key), "|", `\|`), share, page.Percent(r.chance), rank,
				r.best, fmt.Sprint(r.n)})
		}
		d.Table([]string{"key", ">explains alone", ">by chance", ">rank correlation", ">best mean rank at", ">jobs"}, cells)
	}
	if !first {
		text := "This sees no interactions, and a key that was swept over a narrow range explains little, however much it matters outside."
		if v.Count(func(j sweeps.Job) bool { return j.State == record.StatePruned }) > 0 {
			text += " Pruned jobs are left out, and with them some of what bad values cost."
		}
		if slices.Contains([]string{"tpe", "cmaes", "optuna"}, v.Opt.Sweeper) {
			text += fmt.Sprintf(" The %s sweeper draws most jobs near the best ones, so the jobs are no even sample of the ranges: take "+
				"the shares as hints.", page.Plain(v.Opt.Sweeper))
		}
		d.Paragraph("%s", text)
	}
}

// explained returns η², the variance between groups over all variance, and the groups' means.
func explained(y []float64, group []int, groups int) (share float64, means []float64) {
	means = make([]float64, groups)
	count := make([]float64, groups)
	all := stat.Mean(y)
	total, between := 0.0, 0.0
	for i, g := range group {
		means[g] += y[i]
		count[g]++
		total += (y[i] - all) * (y[i] - all)
	}
	for g := range means {
		means[g] /= count[g]
		between += count[g] * (means[g] - all) * (means[g] - all)
	}
	return between / total, means
}

// chanceShare returns the share that n jobs in groups exceed in 1 of 20 sweeps when the groups are alike:
// Kruskal and Wallis's H is nearly χ² then.
func chanceShare(groups, n int) float64 {
	return min(1, distuv.ChiSquared{K: float64(groups - 1)}.Quantile(0.95)/float64(n-1))
}
