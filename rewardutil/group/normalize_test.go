package group

import (
	"fmt"
	"testing"

	"fulcrum/internal/testkit/golden"
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
	golden.JSON(t, "../testdata/dataset_normalize.json", &rows)
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
		{"rounding is no deviation", DefaultNormalizeOptions(), []float64{float64(float32(0.7)), 0.7}, []float64{float64(float32(0.7)), 0.7}},
		{"rounding has no rank", ranks, []float64{float64(float32(0.7)), 0.7}, []float64{0, 0}},
		{"nothing", DefaultNormalizeOptions(), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) { golden.Close(t, Normalize(tc.r, tc.o), tc.want, 1e-15) })
	}
}
