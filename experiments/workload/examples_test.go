package workload

import (
	"slices"
	"testing"
)

// Of many queries that changed five are shown, the largest gain first, the largest loss last, those between evenly; of few all.
func TestPickExamples(t *testing.T) {
	gains := []float64{0, 9, 1, 5, -1, 3, 7, -4, 2, 8, 6, 4, 0.5}
	for _, tc := range []struct {
		changed []int
		want    []float64
	}{
		{[]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, []float64{9, 7, 4, 1, -4}},
		{[]int{4, 3, 2, 1, 5, 7}, []float64{9, 5, 3, 1, -4}},
		{[]int{2, 1, 3}, []float64{9, 5, 1}},
		{[]int{7}, []float64{-4}},
		{nil, nil},
	} {
		var got []float64
		for _, i := range pickExamples(make([]float64, len(gains)), gains, func(i int) bool { return slices.Contains(tc.changed, i) }) {
			got = append(got, gains[i])
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("of the changes %v: %v, want %v", tc.changed, got, tc.want)
		}
	}
}
