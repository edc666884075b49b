package selector

import (
	"slices"
	"testing"
)

func TestChunks(t *testing.T) {
	for _, tc := range []struct {
		n, size int
		want    [][]int
	}{{0, 3, nil}, {2, 3, [][]int{{0, 1}}}, {5, 2, [][]int{{0, 1}, {2, 3}, {4}}}, {4, 2, [][]int{{0, 1}, {2, 3}}}} {
		if got := slices.Collect(Chunks(tc.n, tc.size)); !slices.EqualFunc(got, tc.want, slices.Equal[[]int]) {
			t.Errorf("%d by %d: %v, want %v", tc.n, tc.size, got, tc.want)
		}
	}
	for queries := range Chunks(9, 2) {
		if queries[0] == 2 {
			break // the rest is not asked for
		}
	}
}

func TestScoredAndChosen(t *testing.T) {
	b := NewBatch(nil, []int{0, 1}, 2, 3)
	b.Set(0, 1, []int64{4, -1}, 0)
	b.Set(1, 0, []int64{7, 0, 2}, 0)
	for _, tc := range []struct {
		i, g           int
		scored, chosen []int64
	}{{0, 0, nil, nil}, {0, 1, []int64{4, -1}, []int64{4}}, {1, 0, []int64{7, 0, 2}, []int64{7, 0, 2}}} {
		if s, c := b.Scored(tc.i, tc.g), b.Chosen(tc.i, tc.g); !slices.Equal(s, tc.scored) || !slices.Equal(c, tc.chosen) {
			t.Errorf("query %d candidate %d: scored %v, chosen %v", tc.i, tc.g, s, c)
		}
	}
}
