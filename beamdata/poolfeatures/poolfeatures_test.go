package poolfeatures

import (
	"math"
	"strings"
	"testing"
)

// toy is the facts of a query, row 0, and three candidates: rows 1 and 2 agree on "cat" (number 7), row 3 says "dog" (8).
func toy() (*Facts, []int32, func(int) []float32) {
	rows := [][]float32{{1, 0}, {1, 0}, {0.6, 0.8}, {0, 1}}
	f := &Facts{File: "items.jsonl",
		Answers: [][]Answer{{{Text: 9, Share: 1}}, {{Text: 7, Share: 0.6}, {Text: 8, Share: 0.4}}, {{Text: 7, Share: 1}}, {{Text: 8, Share: 1}}},
		Words:   [][]int32{{1, 2}, {1, 2}, {2, 3}, {4}},
		Tags:    [][]int32{{7, 20}, {20}, {7, 20}, {}},
	}
	return f, []int32{1, 2, 3}, func(i int) []float32 { return rows[i] }
}

// TestExpand: what is named beside the standard features comes once, at its own place. Of columns that the data lack it takes nothing;
// of one that knows a single row it takes all, for Missing to name the others.
func TestExpand(t *testing.T) {
	names, suited := []string{"tag_overlap", "standard", "rank"}, []string{"similarity", "rank", "tag_overlap", "annotators", "answer_in_tags"}
	for _, tc := range []struct {
		facts       *Facts
		taken, left string
	}{
		{nil, "tag_overlap similarity annotators answer_in_tags rank", ""},
		{&Facts{}, "tag_overlap similarity rank", "annotators answer_in_tags"},
		{&Facts{Answers: [][]Answer{nil, {{Text: 1, Share: 1}}}}, "tag_overlap similarity annotators rank", "answer_in_tags"},
	} {
		taken, left := Expand(names, suited, tc.facts)
		if strings.Join(taken, " ") != tc.taken || strings.Join(left, " ") != tc.left {
			t.Errorf("%v and %v left out, want %s and %s", taken, left, tc.taken, tc.left)
		}
	}
	if taken, _ := Expand([]string{"standard"}, nil, &Facts{}); strings.Join(taken, " ") != "similarity rank crowding_mean crowding_max "+
		"chosen_similarity" {
		t.Errorf("without items: %v", taken)
	}
}

// TestFeatures compares each entry with numbers worked out by hand.
func TestFeatures(t *testing.T) {
	f, pool, row := toy()
	e10, e6, e0 := 1.0, math.Exp(5*(0.6-1)), math.Exp(-5)
	all := e10 + e6 + e0
	want := map[string][]float64{
		"similarity": {1, 0.6, 0}, "similarity_1_2": {0, 0, 0}, "similarity_0_1": {1, 1, 0}, "rank": {0, math.Log(2), math.Log(3)},
		"crowding_mean": {0.3, 0.7, 0.4}, "crowding_max": {0.6, 0.8, 0.8}, "annotators": {0.6, 1, 1},
		"agreement_0":      {(0.6*1 + 0.4*1) / 3, 0.6 / 3, 0.4 / 3},
		"agreement_5":      {(0.6*e6 + 0.4*e0) / all, 0.6 * e10 / all, 0.4 * e10 / all},
		"question_overlap": {1, 1. / 3, 0}, "tag_overlap": {0.5, 1, 0}, "answer_in_tags": {0.6, 1, 0},
		"chosen_similarity": {0.6, 1, 0.8}, "chosen_answers": {0.6, 1, 0}, // beside candidate 1, row 2
	}
	seen := map[string]bool{}
	for name, column := range want {
		l, err := New(Table(), []string{name, "annotators"}[:min(2, 1+strings.Count(name, "chosen"))])
		if err != nil {
			t.Fatal(err)
		}
		p := f.Of(0, pool, row)
		p.Between = func() []float32 { return []float32{1, 0.6, 0, 0.6, 1, 0.8, 0, 0.8, 1} }
		rows, step, mean := l.Describe(p), 2, 0.0
		if l.BesideColumns() == 1 {
			rows, step = l.Beside(p, 1), 1
		}
		for j, v := range column {
			mean += v / 3
			if math.Abs(rows[j*step]-v) > 1e-6 {
				t.Errorf("%s: candidate %d has %v, want %v", name, j, rows[j*step], v)
			}
		}
		for j := 0; step == 2 && j < 3; j++ {
			if math.Abs(rows[2*j+1]-(column[j]-mean)) > 1e-6 {
				t.Errorf("%s: candidate %d deviates by %v from the pool's mean, want %v", name, j, rows[2*j+1], column[j]-mean)
			}
		}
		entry, err := find(Table(), name)
		if err != nil {
			t.Fatal(err)
		}
		seen[entry.Name] = true
	}
	for _, entry := range Table() {
		if !seen[entry.Name] && !entry.Reader {
			t.Errorf("%s is not tested", entry.Name)
		}
	}
	l, err := New(Table(), []string{"rank"})
	if err != nil {
		t.Fatal(err)
	}
	l.AddReader(Table())
	p := f.Of(0, pool, row)
	p.Scores = []float64{-1, 2, 5}
	for j, x := range p.Scores {
		if got := l.Describe(p)[4*j+2 : 4*j+4]; got[0] != x || got[1] != x-2 || l.Asks(0) || !l.Asks(1) {
			t.Errorf("score: candidate %d has %v, want %v and %v", j, got, x, x-2)
		}
	}
}

// TestQueryAnswersAreNotRead: other answers of the query change no feature.
func TestQueryAnswersAreNotRead(t *testing.T) {
	f, pool, row := toy()
	l, err := New(Table(), []string{"agreement_0", "agreement_9", "annotators", "answer_in_tags", "chosen_answers"})
	if err != nil {
		t.Fatal(err)
	}
	before := append(l.Describe(f.Of(0, pool, row)), l.Beside(f.Of(0, pool, row), 0)...)
	for _, answers := range [][]Answer{nil, {{Text: 7, Share: 1}}} {
		f.Answers[0] = answers
		if err := l.Missing(f, 0, pool); err != nil {
			t.Errorf("answers of the query are asked for: %v", err)
		}
		for i, v := range append(l.Describe(f.Of(0, pool, row)), l.Beside(f.Of(0, pool, row), 0)...) {
			if v != before[i] {
				t.Fatalf("number %d is %v with the query's answers %v, else %v", i, v, answers, before[i])
			}
		}
	}
}

// TestAnEntryIsOneLine: a feature outside the table works by adding it to the table.
func TestAnEntryIsOneLine(t *testing.T) {
	place := Feature{Name: "place_BASE", Of: func(_ *Pool, args []int, out []float64) {
		for j := range out {
			out[j] = float64(args[0] + j)
		}
	}}
	if _, err := New(Table(), []string{"place_3"}); err == nil {
		t.Fatal("known without its line")
	}
	l, err := New(append(Table(), place), []string{"place_3"})
	if err != nil {
		t.Fatal(err)
	}
	f, pool, row := toy()
	if x := l.Describe(f.Of(0, pool, row)); x[0] != 3 || x[4] != 5 || x[5] != 1 {
		t.Errorf("place_3 is %v", x)
	}
}

func TestNamesAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		names []string
		want  []string
	}{
		{"a typing error names the nearest", []string{"similarty"}, []string{`unknown feature "similarty"`, "did you mean similarity?", "agreement_SHARPNESS"}},
		{"a name without its number", []string{"agreement"}, []string{"unknown feature", "agreement_SHARPNESS"}},
		{"a number that is none", []string{"agreement_x"}, []string{"unknown feature"}},
		{"a number with a sign", []string{"agreement_-1"}, []string{"unknown feature"}},
		{"twice", []string{"rank", "rank"}, []string{"rank stands there twice"}},
		{"nothing before the first choice", []string{"chosen_answers"}, []string{"chosen_answers says nothing before the first choice"}},
		{"the query's answers", []string{"query_answers"}, []string{"query_answers is no feature"}},
		{"recorded scores", []string{"vqa_gt_prob"}, []string{"nobody knows at test time"}},
		{"the reader's accuracies", []string{"demo_acc"}, []string{"demo_acc is no feature", "nobody knows at test time"}},
		{"the reader's prior", []string{"prior_expected_acc"}, []string{"prior_expected_acc is no feature"}},
		{"the reader's weight", []string{"score"}, []string{"the reader's own weight"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(Table(), tc.names)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
		})
	}
}

// TestMissingColumns: the error names the feature, the column, the file and the row.
func TestMissingColumns(t *testing.T) {
	for _, tc := range []struct {
		name string
		drop func(f *Facts)
		want []string
	}{
		{"a candidate's answers", func(f *Facts) { f.Answers[2] = nil }, []string{"agreement_3", "answer_counts", "items.jsonl", "row 2"}},
		{"the query's tags", func(f *Facts) { f.Tags[0] = nil }, []string{"tag_overlap", "tags", "row 0"}},
		{"a row behind the file's end", func(f *Facts) { f.Words = f.Words[:3] }, []string{"question_overlap", "question", "row 3"}},
		{"no file", func(f *Facts) { *f = Facts{} }, []string{"agreement_3", "the data have no items.jsonl", `"answer_counts"`}},
		{"all there", func(*Facts) {}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, pool, _ := toy()
			tc.drop(f)
			l, err := New(Table(), []string{"similarity", "agreement_3", "tag_overlap", "question_overlap"})
			if err != nil {
				t.Fatal(err)
			}
			err = l.Missing(f, 0, pool)
			if (err != nil) != (tc.want != nil) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
		})
	}
}

// TestOwnPool: the query among its candidates would show features its answers.
func TestOwnPool(t *testing.T) {
	f, pool, _ := toy()
	l, err := New(Table(), []string{"annotators"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Missing(f, 2, pool); err == nil || !strings.Contains(err.Error(), "query 2 stands in its own pool") {
		t.Errorf("error %v", err)
	}
}

// TestBlocksFit: a block of columns that the embeddings do not have is refused.
func TestBlocksFit(t *testing.T) {
	for name, fits := range map[string]bool{"similarity_0_8": true, "similarity_7_8": true, "similarity_4_4": false, "similarity_5_4": false,
		"similarity_0_9": false, "similarity_8_9": false, "agreement_90": true} {
		l, err := New(Table(), []string{name})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Fits(8); (err == nil) != fits || !fits && !strings.Contains(err.Error(), name+" reads columns") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestScaling: the rows that it was measured on have mean 0 and deviation 1, a constant column is 0.
func TestScaling(t *testing.T) {
	var s Scaling
	rows := []float64{1, 5, 3, 5, 5, 5, 7, 5}
	s.Add(rows, 2, 1)
	s.Add([]float64{2, 4}, 1, 0)
	s.Measured()
	got := s.Apply(rows, 2, 1)
	want := []float64{-3, 0, -1, 0, 1, 0, 3, 0}
	for i, v := range want {
		if math.Abs(float64(got[i])-v/math.Sqrt(5)) > 1e-6 {
			t.Errorf("scaled %v, want %v / √5", got, want)
			break
		}
	}
	if s.Mean[0] != 3 || s.Scale[0] != 1 {
		t.Errorf("column 0: mean %v, scale %v, want 3 and 1", s.Mean[0], s.Scale[0])
	}
}
