package beamdata

import (
	"reflect"
	"testing"
)

func TestBestBeam(t *testing.T) {
	table := NewTable(5, 1, make([]float32, 5))
	pool := []int32{1, 2, 3}
	queries := []Query{
		{ID: 0, Pool: pool, Candidates: [][]int32{{0, 1}, {2, 1}, {1, 2}}, Rewards: []float64{0.1, 0.3, 0.3}},
		{ID: 4, Pool: pool, Candidates: [][]int32{{1, 0}, {2, 0}}, Rewards: []float64{0.1, 0.9},
			Methods: []string{"teacher", "random"}},
		{ID: 4, Pool: pool},
	}
	set, err := NewSet("test", table, 2, queries, nil)
	if err != nil {
		t.Fatal(err)
	}
	otherwise := [][]int32{{0, 2}, {0, 2}, {0, 2}}
	got := BestBeam(set, 2, otherwise)
	if want := [][]int32{{2, 1}, {1, 0}, {0, 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v: the first of the best beams, no other method, else the fallback", got, want)
	}
	if otherwise[0][0] != 0 {
		t.Error("the fallback was changed")
	}
	if got := BestBeam(set, 3, otherwise); got != nil {
		t.Errorf("beams of another number of examples: got %v", got)
	}
	if got := BestBeam(set.Subset([]int{2}), 2, otherwise[:1]); got != nil {
		t.Errorf("no beam: got %v", got)
	}
}
