package torchorder

import (
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// Recorded from libtorch 1.13's CPU kernels on inputs with many ties, up to 64 values.
func TestCompatOrderEqualsLibtorch(t *testing.T) {
	var g struct {
		TopK []struct {
			Rewards []golden.Number
			K       int
			Indices []int
		} `json:"topk_ties"`
		Sort []struct {
			Rewards []golden.Number
			Indices []int `json:"sort_desc_indices"`
		} `json:"sort_ties"`
	}
	golden.JSON(t, "../testdata/advantage_topk.json", &g)
	if len(g.TopK) != 115 || len(g.Sort) != 30 {
		t.Fatalf("%d and %d golden rows, want 115 and 30", len(g.TopK), len(g.Sort))
	}
	for _, row := range g.TopK {
		if got := TopK(golden.Floats(row.Rewards), row.K); !slices.Equal(got, row.Indices) {
			t.Errorf("topk %d of %v: got %v, want %v", row.K, golden.Floats(row.Rewards), got, row.Indices)
		}
	}
	for _, row := range g.Sort {
		if got := Sort(golden.Floats(row.Rewards)); !slices.Equal(got, row.Indices) {
			t.Errorf("sort %v: got %v, want %v", golden.Floats(row.Rewards), got, row.Indices)
		}
	}
}

// The partial_sort branch of torch.topk (k·64 ≤ n), from a session of libtorch 1.13:
//
//	>>> r = [(7*i*i + 3*i) % 5. for i in range(130)]
//	>>> torch.tensor(r).topk(2).indices.tolist(), torch.tensor(r).topk(1).indices.tolist()
func TestCompatTopKOfManyEqualsLibtorch(t *testing.T) {
	r := make([]float64, 130)
	for i := range r {
		r[i] = float64((7*i*i + 3*i) % 5)
	}
	if got := TopK(r, 2); !slices.Equal(got, []int{4, 2}) {
		t.Errorf("top 2: got %v", got)
	}
	if got := TopK(r, 1); !slices.Equal(got, []int{2}) {
		t.Errorf("top 1: got %v", got)
	}
	if got := TopK(nil, 3); len(got) != 0 {
		t.Errorf("nothing: got %v", got)
	}
}
