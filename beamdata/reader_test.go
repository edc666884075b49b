package beamdata

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
)

// A reward table's numbers are refused where they would overflow, with the query's row.
func TestReaderRefusesHugeNumbers(t *testing.T) {
	table := func(change string, x float32) map[string]*tensorfile.Array {
		numbers := map[string][]float32{"score": {0, -1, -2, -3}, "demo_acc": {0, 1, 0, 1}, "prior_score": {-1, -1},
			"prior_expected_acc": {0, 0.5}}
		if change != "" {
			numbers[change][len(numbers[change])-1] = x
		}
		arrays := map[string]*tensorfile.Array{
			"query_id":         {Tensor: int64s([]int{2}, 1, 2)},
			"pool":             {Tensor: int64s([]int{2, 2}, 3, 4, 4, 5)},
			"prior_top_answer": {Tensor: tensorfile.Tensor{Shape: []int{2}}, Strings: []string{"a", "b"}},
		}
		for name, v := range numbers {
			shape := []int{2}
			if len(v) == 4 {
				shape = []int{2, 2}
			}
			arrays[name] = &tensorfile.Array{Tensor: tensorfile.FromFloat32s("", shape, v)}
		}
		return arrays
	}
	for _, tc := range []struct {
		array string
		x     float32
		want  string // "" = accepted
	}{
		{"", 0, ""},
		{"demo_acc", 2e30, "array demo_acc: query row 1 holds 2e+30, want a number within ±1e+30"},
		{"prior_expected_acc", -2e30, "array prior_expected_acc: query row 1 holds -2e+30, want a number within ±1e+30"},
		{"score", 100, "array score: query row 1 holds a logarithm above that of 1e+30"},
		{"prior_score", 100, "array prior_score: query row 1 holds a logarithm above that of 1e+30"},
	} {
		_, err := newReader(table(tc.array, tc.x), 6)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s = %v: error %v, want %q", tc.array, tc.x, err, tc.want)
		}
	}
	numbered := table("", 0)
	numbered["prior_top_answer"] = &tensorfile.Array{Tensor: int64s([]int{2}, 7, 8)}
	if _, err := newReader(numbered, 6); fmt.Sprint(err) != "array prior_top_answer holds 0 texts, want 2 (strings, no numbers)" {
		t.Errorf("answers by number: %v", err)
	}
}

func int64s(shape []int, values ...int64) tensorfile.Tensor {
	t := tensorfile.Tensor{DType: tensorfile.I64, Shape: shape}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(v))
	}
	return t
}

// A score so low that its weight is 0 stays a number: a selector that reads it computes with it.
func TestReaderScoresAreFinite(t *testing.T) {
	if got := readerScores(&Reader{weight: [][]float64{{0, 1}}}, 0, []int32{0, 1}); math.IsInf(got[0], 0) || got[0] > -700 || got[1] != 0 {
		t.Errorf("log weights of 0 and 1: %v", got)
	}
}

// Questions without texts are told by their rows: the same ids in other data are other questions.
func TestQuestionsWithoutTexts(t *testing.T) {
	a, errA := loadContent(t, manyLegacy(), func(*Options) {})
	b, errB := loadContent(t, manyLegacy(), func(o *Options) {
		rows := make([]float32, 40)
		for i := range rows {
			rows[i] = float32(i * i)
		}
		if err := tensorfile.WriteSafetensors(*o.Embeddings, []tensorfile.Tensor{tensorfile.FromFloat32s("emb", []int{20, 2}, rows)},
			nil); err != nil {
			t.Fatal(err)
		}
	})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	one, sketch := a.Questions(a.Val)
	two, other := b.Questions(b.Val)
	if one == two || slices.ContainsFunc(other, func(h string) bool { return slices.Contains(sketch, h) }) {
		t.Errorf("other data have the same questions: %s, %s", one, two)
	}
}
