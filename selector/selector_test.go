package selector

import (
	"reflect"
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

// TestTakeAndPart: what belongs to a candidate goes where it goes.
func TestTakeAndPart(t *testing.T) {
	b := NewBatch(nil, []int{5, 6}, 3, 2)
	b.Truncated, b.Texts = make([]bool, 6), []string{"a", "b", "c", "d", "e", "f"}
	b.Terms = map[string][]float64{"format": {0, 1, 2, 3, 4, 5}}
	b.Sampled = []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for i := range 6 {
		b.Set(i/3, i%3, []int64{int64(i), 9}[:1+i%2], float64(10*i))
		b.Truncated[i] = i%2 == 0
	}
	top := b.Take(2, []int{2, 0, 1, 0}, []bool{true, true, true, false})
	if want := []string{"c", "a", "e", ""}; !slices.Equal(top.Texts, want) {
		t.Errorf("texts %v, want %v", top.Texts, want)
	}
	if want := []float64{2, 0, 4, 0}; !slices.Equal(top.Terms["format"], want) {
		t.Errorf("terms %v, want %v", top.Terms["format"], want)
	}
	if want := []bool{true, true, true, false}; !slices.Equal(top.Truncated, want) || !slices.Equal(top.Valid, want) || top.Cut(3) {
		t.Errorf("truncated %v, valid %v, want %v", top.Truncated, top.Valid, want)
	}
	if want := []float64{20, 0, 40, 0}; !slices.Equal(top.Rewards, want) {
		t.Errorf("rewards %v, want %v", top.Rewards, want)
	}
	if want := []float64{4, 5, 0, 1, 8, 9, 0, 0}; !slices.Equal(top.Sampled, want) {
		t.Errorf("log-probabilities %v, want %v", top.Sampled, want)
	}
	wider := NewBatch(nil, []int{7}, 2, 3)
	wider.Sampled = []float64{20, 21, 22, 23, 24, 25}
	if got := Join(nil, 2, top, wider).Sampled; !slices.Equal(got, []float64{4, 5, 0, 0, 1, 0, 8, 9, 0, 0, 0, 0, 20, 21, 22, 23, 24, 25}) {
		t.Errorf("joined log-probabilities %v", got)
	}
	wider.Anchors, wider.Truncated, wider.Texts = []float64{3}, []bool{true, false}, []string{"x", "y"}
	wider.Kept, wider.Terms = []float64{1, 0.5}, map[string][]float64{"format": {6, 7}}
	for _, joined := range []*Batch{Join(nil, 2, b.Groups(nil), wider), Join(nil, 2, wider, b.Groups(nil))} {
		if !reflect.DeepEqual(joined, wider) {
			t.Errorf("joined with an empty batch %+v, want %+v", joined, wider)
		}
	}
	last := top.Part(1, 2)
	if !slices.Equal(last.Sampled, []float64{8, 9, 0, 0}) {
		t.Errorf("log-probabilities of the last query %v", last.Sampled)
	}
	if last.B() != 1 || last.Queries[0] != 6 || !slices.Equal(last.Scored(0, 0), []int64{4}) || last.Texts[0] != "e" ||
		last.Terms["format"][0] != 4 || !last.Cut(0) || last.NumValid() != 1 {
		t.Errorf("the last query's part is %+v", last)
	}
	if bare := NewBatch(nil, []int{1}, 1, 1).Take(1, []int{0}, []bool{true}); bare.Truncated != nil || bare.Texts != nil ||
		bare.Terms != nil || bare.Cut(0) {
		t.Errorf("a batch without texts became %+v", bare)
	}
}
