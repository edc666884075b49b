package pointer

import (
	"math"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/selector"
)

// TestEnumerate: the selections of a query are all different, and a policy's probabilities of them add up to 1: an expected reward over
// them is the policy's own.
func TestEnumerate(t *testing.T) {
	src := scene(t, 8, 2) // pools of 5, 8, 11 …
	b, err := src.Enumerate([]int{0, 1, 2}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if b.G != 110 || b.NumValid() != 20+56+110 {
		t.Fatalf("groups of %d, %d selections, want 110 and 186", b.G, b.NumValid())
	}
	logp := policy(t, DefaultOptions(), 8).Forward(b, selector.ForwardOptions{}).LogP.Floats()
	for i := range b.B() {
		sum, seen := 0.0, map[[2]int64]bool{}
		for g := range b.G {
			if at := i*b.G + g; b.Valid[at] {
				sum += math.Exp(logp[2*at] + logp[2*at+1])
				seen[[2]int64(b.Scored(i, g))] = true
			}
		}
		k := src.Set().PoolSize(i)
		if math.Abs(sum-1) > 1e-5 || len(seen) != k*(k-1) {
			t.Errorf("query %d: probabilities add up to %g over %d selections, want 1 over %d", i, sum, len(seen), k*(k-1))
		}
	}
}

func TestEnumerateIsBounded(t *testing.T) {
	var pool []int32
	for i := range int32(150) {
		pool = append(pool, i+1)
	}
	set, err := beamdata.NewSet("train", beamdata.NewTable(151, 2, make([]float32, 302)), 2, []beamdata.Query{{ID: 0, Pool: pool}}, byQuery{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewSource(set).Enumerate([]int{0}, 2)
	if err == nil || !strings.Contains(err.Error(), "query 0: 2 of a pool of 150 are more than 20000 selections") {
		t.Errorf("error %v", err)
	}
}
