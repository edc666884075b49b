package split

import (
	"maps"
	"slices"
	"testing"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
)

// Questions about one picture stand on one side, and no more of them are held out than that takes; without pictures the choice is the tail
// of a shuffle.
func TestPicturesStayWhole(t *testing.T) {
	ids := make([]int64, 100)
	for i := range ids {
		ids[i] = int64(7 * i)
	}
	none := func(int) (int64, bool) { return 0, false }
	threes := func(row int) (int64, bool) { return int64(row / 21), row < 600 }
	for seed := range int64(20) {
		order := slices.Clone(ids)
		rng.New(seed, "split").Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		if got := ByID(ids, none, 0.8, seed); !maps.Equal(got, list.Set(order[80:])) {
			t.Errorf("seed %d: got %v, want %v", seed, got, order[80:])
		}
		for _, val := range []map[int64]bool{ByID(ids, threes, 0.8, seed), ByImage(ids, threes, 0.2, seed)} {
			if len(val) < 20 || len(val) > 22 {
				t.Errorf("seed %d: %d queries, want 20 to 22", seed, len(val))
			}
			sides := map[int64]bool{}
			for _, id := range ids {
				picture, known := threes(int(id))
				if side, seen := sides[picture]; known && seen && side != val[id] {
					t.Errorf("seed %d: questions about picture %d on both sides", seed, picture)
				}
				sides[picture] = val[id]
			}
		}
	}
	if all, nothing := ByID(ids, threes, 0, 1), ByID(ids, threes, 1, 1); len(all) != 100 || len(nothing) != 0 {
		t.Errorf("%d and %d held out, want 100 and 0", len(all), len(nothing))
	}
}
