package pointer

import (
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/torchx"
)

// TestPoolsOfOneQuery: a query with one pool in one set and another in the next, as recorded and online data have it, is described by
// the pool that is asked for, whichever came first.
func TestPoolsOfOneQuery(t *testing.T) {
	torchx.Attach(1)
	table := beamdata.NewTable(4, 2, []float32{1, 0, 1, 0, 0.6, 0.8, 0, 1})
	opt := DefaultOptions()
	opt.Head, opt.Features = "none", someFeatures("similarity")
	p, err := newPolicy(nil, opt, 2, 3, "cpu", torchx.Float64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	for _, pool := range [][]int32{{1, 2, 3}, {3, 2, 1}, {2, 3}, {1, 2, 3}} {
		set, err := beamdata.NewSet("train", table, 1, []beamdata.Query{{ID: 0, Pool: pool}}, byQuery{})
		if err != nil {
			t.Fatal(err)
		}
		x, _ := p.describe(NewSource(set), 0, nil)
		cosine := map[int32]float32{1: 1, 2: 0.6, 3: 0}
		for j, row := range pool {
			// mean 0 and scale 0.3 of the first column
			if got, want := x[2*j], cosine[row]/0.3; len(x) != 2*len(pool) || got < want-1e-5 || got > want+1e-5 {
				t.Errorf("pool %v: row %d is described by %v of %d numbers, want %v", pool, row, got, len(x), want)
			}
		}
	}
}
