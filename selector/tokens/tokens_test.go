package tokens_test

import (
	"reflect"
	"strings"
	"testing"

	"fulcrum/selector"
	"fulcrum/selector/prompts"
	"fulcrum/selector/tokens"
)

// TestGroupsAndBack: padding has no place among the groups, its steps point behind the last token, and numbers a token come
// back by completion.
func TestGroupsAndBack(t *testing.T) {
	src := prompts.List[string]{Prompts: []string{"a", "b"}}
	b := selector.NewBatch(src, []int{1, 0}, 2, 3)
	b.Set(0, 1, []int64{7, 8}, 0)
	b.Set(1, 0, []int64{5, 6, 9}, 0)
	b.Set(1, 1, nil, 0)
	groups, index := tokens.Groups[string]("test", b)
	want := []tokens.Group[string]{{Prompt: "b", Completions: [][]int64{{7, 8}}}, {Prompt: "a", Completions: [][]int64{{5, 6, 9}, {}}}}
	if !reflect.DeepEqual(groups, want) {
		t.Errorf("groups %v, want %v", groups, want)
	}
	if want := []int64{5, 5, 5, 0, 1, 5, 2, 3, 4, 5, 5, 5}; !reflect.DeepEqual(index, want) {
		t.Errorf("index %v, want %v", index, want)
	}
	if got, want := tokens.ByCompletion(groups, []float64{0, 1, 2, 3, 4}),
		[][][]float64{{{0, 1}}, {{2, 3, 4}, {}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("by completion %v, want %v", got, want)
	}
}

// TestBatch: a batch is as long as its longest completion, and knows which were cut.
func TestBatch(t *testing.T) {
	src := prompts.List[string]{Prompts: []string{"a"}}
	b, logp := tokens.Batch(src, []int{0}, [][]tokens.Completion{{{IDs: []int64{4, 2}, LogP: -1},
		{IDs: []int64{3}, Finished: true, LogP: -2}}})
	if b.G != 2 || b.T != 2 || !b.Truncated[0] || b.Truncated[1] || !reflect.DeepEqual(b.Scored(0, 0), []int64{4, 2}) ||
		!reflect.DeepEqual(b.Scored(0, 1), []int64{3}) {
		t.Errorf("batch %+v", b)
	}
	if want := []float64{-1, -2}; !reflect.DeepEqual(logp, want) {
		t.Errorf("log-probabilities %v, want %v", logp, want)
	}
}

// TestWrongSource: a source without this policy's prompts is named.
func TestWrongSource(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "source input has no prompts") {
			t.Errorf("error %v, want one that names the source", err)
		}
	}()
	tokens.Prompts[int]("test", prompts.List[string]{Prompts: []string{"a"}}, []int{0})
}
