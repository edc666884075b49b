package search

import (
	"cmp"
	"math"
	"slices"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// ranked returns the trials with a result from the best to the worst: feasible ones before those that
// violate a constraint, which are ordered by how much they do. With several objectives a trial comes before
// another when fewer others dominate it, front by front (Deb et al. 2002), and within a front where it is
// less crowded; one that was pruned, whose cost is that of a part, comes behind those that are done. With one objective a pruned
// trial counts with the best value that it had reached. Ties go to the earlier trial.
func ranked(history []sweeper.Trial) []sweeper.Trial {
	var feasible, pruned, violating []sweeper.Trial
	for _, t := range byNumber(history) {
		switch {
		case !ended(t):
		case t.Violation > 0 || math.IsNaN(t.Violation):
			violating = append(violating, t)
		case t.State == launcher.Pruned && len(t.Losses) > 1:
			pruned = append(pruned, t)
		default:
			feasible = append(feasible, t)
		}
	}
	slices.SortStableFunc(violating, func(a, b sweeper.Trial) int { return cmp.Compare(number(a.Violation), number(b.Violation)) })
	if several := append(fronts(feasible), fronts(pruned)...); len(several) > 0 && len(several[0][0].Losses) > 1 {
		feasible = slices.Concat(list.Map(several, spread)...)
	} else {
		slices.SortStableFunc(feasible, func(a, b sweeper.Trial) int { return cmp.Compare(loss(a), loss(b)) })
	}
	return append(feasible, violating...)
}

// byNumber returns the history in the order of the trials' numbers, whatever order they ended in.
func byNumber(history []sweeper.Trial) []sweeper.Trial {
	out := slices.Clone(history)
	slices.SortStableFunc(out, func(a, b sweeper.Trial) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// dominates reports whether losses a are nowhere worse than b and somewhere better. NaN is worse than any number.
func dominates(a, b []float64) bool {
	better := false
	for i := range a {
		x, y := number(a[i]), number(b[i])
		if x > y {
			return false
		}
		better = better || x < y
	}
	return better
}

// fronts sorts trials into the first front, which nobody dominates, the second, which only the first
// dominates, and so on.
func fronts(trials []sweeper.Trial) [][]sweeper.Trial {
	var out [][]sweeper.Trial
	for rest := trials; len(rest) > 0; {
		var front, behind []sweeper.Trial
		for _, t := range rest {
			if slices.ContainsFunc(rest, func(o sweeper.Trial) bool { return dominates(o.Losses, t.Losses) }) {
				behind = append(behind, t)
			} else {
				front = append(front, t)
			}
		}
		out, rest = append(out, front), behind
	}
	return out
}

// spread orders a front by crowding distance, the loneliest first.
func spread(front []sweeper.Trial) []sweeper.Trial {
	distance := crowding(front)
	order := stat.Indices(len(front))
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(distance[j], distance[i]) })
	return list.Map(order, func(i int) sweeper.Trial { return front[i] })
}

// crowding returns the crowding distance of each trial of a front (Deb et al. 2002, III.B): the sides of the box
// between its neighbours, summed over the objectives; infinite at an objective's ends.
func crowding(front []sweeper.Trial) []float64 {
	distance := make([]float64, len(front))
	for k := range front[0].Losses {
		order := stat.Indices(len(front))
		slices.SortStableFunc(order, func(i, j int) int {
			return cmp.Compare(number(front[i].Losses[k]), number(front[j].Losses[k]))
		})
		low, high := number(front[order[0]].Losses[k]), number(front[order[len(order)-1]].Losses[k])
		distance[order[0]], distance[order[len(order)-1]] = math.Inf(1), math.Inf(1)
		for i := 1; i+1 < len(order) && high > low && !math.IsInf(high, 1); i++ {
			distance[order[i]] += (front[order[i+1]].Losses[k] - front[order[i-1]].Losses[k]) / (high - low)
		}
	}
	return distance
}
