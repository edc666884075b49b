package rewardutil

import (
	"fmt"
	"slices"
	"testing"

	"fulcrum/internal/golden"
)

// Recorded by running the reference's dataset class (float32) on soft scores.
func TestNormalizeEqualsTheReference(t *testing.T) {
	var rows []struct {
		Soft       []golden.Number `json:"soft_scores"`
		Method     string
		Clamp      float64
		Raw        []golden.Number
		Normalized []golden.Number
	}
	golden.JSON(t, "testdata/dataset_normalize.json", &rows)
	if len(rows) != 52 {
		t.Fatalf("%d golden rows, want 52", len(rows))
	}
	for i, row := range rows {
		t.Run(fmt.Sprint(i, row.Method), func(t *testing.T) {
			got := Normalize(golden.Floats(row.Raw), NormalizeOptions{Method: row.Method, Clamp: row.Clamp, Ties: "position"})
			golden.Close(t, got, golden.Floats(row.Normalized), 1e-6) // float32 there, float64 here
		})
	}
}

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
	golden.JSON(t, "testdata/advantage_topk.json", &g)
	if len(g.TopK) != 115 || len(g.Sort) != 30 {
		t.Fatalf("%d and %d golden rows, want 115 and 30", len(g.TopK), len(g.Sort))
	}
	for _, row := range g.TopK {
		if got := CompatTopK(golden.Floats(row.Rewards), row.K); !slices.Equal(got, row.Indices) {
			t.Errorf("topk %d of %v: got %v, want %v", row.K, golden.Floats(row.Rewards), got, row.Indices)
		}
	}
	for _, row := range g.Sort {
		if got := compatSort(golden.Floats(row.Rewards)); !slices.Equal(got, row.Indices) {
			t.Errorf("sort %v: got %v, want %v", golden.Floats(row.Rewards), got, row.Indices)
		}
	}
}

func TestNormalizeDefaults(t *testing.T) {
	ranks := DefaultNormalizeOptions()
	ranks.Method = "rank_normalize"
	for _, tc := range []struct {
		name string
		o    NormalizeOptions
		r    []float64
		want []float64
	}{
		{"equal rewards share their rank", ranks, []float64{1, 0, 1, 0}, []float64{2. / 3, -2. / 3, 2. / 3, -2. / 3}},
		{"all equal is the middle", ranks, []float64{7, 7, 7}, []float64{0, 0, 0}},
		{"one reward ranks 0", ranks, []float64{7}, []float64{0}},
		{"one reward has no deviation", DefaultNormalizeOptions(), []float64{7}, []float64{7}},
		{"none is the identity", NormalizeOptions{Method: "none"}, []float64{9, -9}, []float64{9, -9}},
		{"equal decimals have no deviation", DefaultNormalizeOptions(), []float64{0.1, 0.1, 0.1}, []float64{0.1, 0.1, 0.1}},
		{"nothing", DefaultNormalizeOptions(), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) { golden.Close(t, Normalize(tc.r, tc.o), tc.want, 1e-15) })
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
	if got := CompatTopK(r, 2); !slices.Equal(got, []int{4, 2}) {
		t.Errorf("top 2: got %v", got)
	}
	if got := CompatTopK(r, 1); !slices.Equal(got, []int{2}) {
		t.Errorf("top 1: got %v", got)
	}
	if got := CompatTopK(nil, 3); len(got) != 0 {
		t.Errorf("nothing: got %v", got)
	}
}
