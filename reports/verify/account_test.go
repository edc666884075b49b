package verify

import (
	"math"
	"slices"
	"testing"

	"fulcrum/internal/account"
	"fulcrum/internal/rng"
	"fulcrum/reports/record"
)

// The account of a run is counted again from its seed: a query that was left out, seen twice or seen elsewhere changes it.
func TestAccountIsCountedAgain(t *testing.T) {
	const queries, perEpoch, epochs = 50, 20, 3
	var orders []int
	for epoch := 1; epoch <= epochs; epoch++ {
		orders = append(orders, rng.New(7, "shuffle rce", epoch).Perm(queries)[:perEpoch]...)
	}
	for name, tc := range map[string]struct {
		change func(seen []int) []int
		data   any // data.shuffle
		same   bool
	}{
		"honest":       {func(seen []int) []int { return seen }, true, true},
		"not shuffled": {func(seen []int) []int { return seen }, false, false},
		"one missing":  {func(seen []int) []int { return slices.Delete(seen, 30, 31) }, true, false},
		"one twice":    {func(seen []int) []int { return slices.Insert(seen, 31, seen[30]) }, true, false},
		"two changed places across epochs": {func(seen []int) []int {
			seen[19], seen[20] = seen[20], seen[19]
			return seen
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			of := account.Of{Phase: "rce", Queries: queries, PerEpoch: perEpoch}
			for _, q := range tc.change(slices.Clone(orders)) {
				of.Add(q)
			}
			c := &runCheck{run: &record.Run{Tree: map[string]any{"seed": 7.0, "data": map[string]any{"shuffle": tc.data}}}}
			s := &record.Summary{Account: []account.Of{of}, Phases: []record.PhaseSummary{{Name: "rce", Epochs: epochs}},
				Data: record.DataSummary{Counts: map[string]int{"rce_queries": queries, "val_queries": 9}}}
			if again := c.account(s); (again[0] == of) != tc.same {
				t.Errorf("stated %+v, counted again %+v", of, again[0])
			}
			s.Account[0].Queries = math.MaxInt
			if again := c.account(s); again[0].Queries != queries {
				t.Errorf("a number that was changed: %+v", again[0])
			}
		})
	}
}
