package workload

import "testing"

func TestQueriesOfPass(t *testing.T) {
	for pool, want := range map[int]int{1: 128, 2048: 128, 4096: 64, 20_000: 13, 300_000: 1} {
		if got := queriesOfPass(pool); got != want {
			t.Errorf("pools of %d: %d queries, want %d", pool, got, want)
		}
	}
}
