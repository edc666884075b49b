package rewardutil

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/golden"
)

type vqaGolden struct {
	Normalise []struct {
		In           string
		Punct        string
		DigitArticle string `json:"digit_article"`
		Both         string
	}
	Postprocess []struct {
		In  any
		Out string
	}
	Dataset VQAReport
}

// Recorded by running the reference's metric, whose string rules are the official ones.
func TestNormalizeAnswerEqualsTheReference(t *testing.T) {
	var g vqaGolden
	golden.JSON(t, "testdata/vqa_metric.json", &g)
	if len(g.Normalise) != 95 || len(g.Postprocess) != 12 {
		t.Fatalf("%d and %d golden rows, want 95 and 12", len(g.Normalise), len(g.Postprocess))
	}
	for _, row := range g.Normalise {
		got := []string{stripPunctuation(row.In), normalizeWords(row.In), NormalizeAnswer(row.In)}
		if want := []string{row.Punct, row.DigitArticle, row.Both}; !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, want %q", row.In, got, want)
		}
	}
	for _, row := range g.Postprocess {
		if in, ok := row.In.(string); ok {
			if got := ExtractAnswer(in); got != row.Out {
				t.Errorf("%q: got %q, want %q", in, got, row.Out)
			}
		}
	}
}

func readVQA(t *testing.T) ([]VQAAnnotation, []VQAResult) {
	t.Helper()
	read := func(path string) *bytes.Reader {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(data)
	}
	annotations, err := ReadVQAAnnotations(read("testdata/vqa_annotations.json"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := ReadVQAResults(read("testdata/vqa_results.json"))
	if err != nil {
		t.Fatal(err)
	}
	return annotations, results
}

// The whole evaluation of 36 questions, some with ground truths that lack an id, to the last digit.
func TestEvaluateVQAEqualsTheReference(t *testing.T) {
	var g vqaGolden
	golden.JSON(t, "testdata/vqa_metric.json", &g)
	annotations, results := readVQA(t)
	got, err := EvaluateVQA(annotations, results, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.ByQuestion) != 36 || !reflect.DeepEqual(got, g.Dataset) {
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(g.Dataset)
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func TestEvaluateVQAStandard(t *testing.T) {
	annotations, results := readVQA(t)
	standard, err := EvaluateVQA(annotations, results, false)
	if err != nil {
		t.Fatal(err)
	}
	compat, _ := EvaluateVQA(annotations, results, true)
	var differ []int64
	for id := range standard.ByQuestion {
		if standard.ByQuestion[id] != compat.ByQuestion[id] {
			differ = append(differ, id)
		}
	}
	if len(differ) == 0 || len(differ) > 3 { // those without distinct answer ids
		t.Errorf("standard and compat differ on questions %v, want the few without answer ids", differ)
	}

	if _, err := EvaluateVQA(annotations, append(results, VQAResult{QuestionID: 7}), false); err == nil || !strings.Contains(err.Error(), "question 7: no such question") {
		t.Errorf("unknown question: got %v", err)
	}
	if _, err := EvaluateVQA(annotations, append(results, results[0]), false); err == nil || !strings.Contains(err.Error(), "two results") {
		t.Errorf("double result: got %v", err)
	}
	if _, err := EvaluateVQA(annotations, nil, false); err == nil {
		t.Error("no results: want an error")
	}
}

func TestVQAAccuracy(t *testing.T) {
	ten := func(n int, answer string) []string {
		out := make([]string, 10)
		for i := range out {
			out[i] = "other"
			if i < n {
				out[i] = answer
			}
		}
		return out
	}
	for _, tc := range []struct {
		name       string
		prediction string
		answers    []string
		compat     bool
		want       float64
	}{
		{"no match", "cat", ten(0, ""), false, 0},
		{"one of ten: a third for the nine others", "cat", ten(1, "cat"), false, 0.3},
		{"two of ten", "cat", ten(2, "cat"), false, 0.6},
		{"three of ten: the three themselves see two others", "cat", ten(3, "cat"), false, 0.9},
		{"four of ten", "cat", ten(4, "cat"), false, 1},
		{"strings are normalised", "The two Cats!", ten(4, "2 cats"), false, 1},
		{"equal ground truths are compared as they are", "Cat.", ten(10, "cat"), false, 0},
		{"but always normalised by the reference", "Cat.", ten(10, "cat"), true, 1},
		{"line breaks and outer spaces go", " red\nblue ", ten(4, "red blue"), false, 1},
		{"no ground truth", "cat", nil, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := strings.Join(tc.answers, "|")
			golden.Close(t, []float64{VQAAccuracy(tc.prediction, tc.answers, tc.compat)}, []float64{tc.want}, 1e-15)
			if strings.Join(tc.answers, "|") != before {
				t.Error("the caller's answers were changed")
			}
		})
	}
}

// Recorded by running the reference's fallback scorer; the second recorded number is its score.
func TestFallbackAccuracyEqualsTheReference(t *testing.T) {
	var rows []struct {
		Pred   *string
		GT     []string
		Result [3]any
	}
	golden.JSON(t, "testdata/fallback_accuracy.json", &rows)
	if len(rows) != 7 {
		t.Fatalf("%d golden rows, want 7", len(rows))
	}
	for _, row := range rows {
		pred := ""
		if row.Pred != nil {
			pred = *row.Pred
		}
		if got := FallbackAccuracy(pred, row.GT, true); got != row.Result[1].(float64) {
			t.Errorf("%q in %q: got %v, want %v", pred, row.GT, got, row.Result[1])
		}
		if pred == "" && FallbackAccuracy(pred, row.GT, false) != 0 {
			t.Errorf("an empty answer scores above 0 by default")
		}
	}
}

// Recorded by running the reference's relevance function.
func TestRelevanceEqualsTheReference(t *testing.T) {
	var rows []struct {
		Pred   *string
		GT     []string
		Result map[string]float64
	}
	golden.JSON(t, "testdata/relevance.json", &rows)
	if len(rows) != 10 {
		t.Fatalf("%d golden rows, want 10", len(rows))
	}
	for _, row := range rows {
		pred := ""
		if row.Pred != nil {
			pred = *row.Pred
		}
		got := RelevanceOf(pred, row.GT)
		golden.Close(t, []float64{got.TokenF1, got.EditSim, got.Score},
			[]float64{row.Result["vqa_rel_token_f1"], row.Result["vqa_rel_edit_sim"], row.Result["vqa_rel_score"]}, 1e-15)
	}
}

// From a Python 3.11 session: difflib.SequenceMatcher(None, a, b).ratio()
func TestSequenceRatioEqualsDifflib(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want float64
	}{
		{"", "", 1.0},
		{"", "x", 0.0},
		{"private", "privately", 0.875},
		{"abxcd", "abcd", 0.8888888888888888},
		{"qabxcd", "abycdf", 0.6666666666666666},
		{"tide", "diet", 0.25},
		{"diet", "tide", 0.5},
		{"naïve café", "naive cafe", 0.8},
		{"aaaa", "aa", 0.6666666666666666},
		{strings.Repeat("ab", 150), strings.Repeat("ba", 150), 0.0},
		{"x" + strings.Repeat("ab", 150), strings.Repeat("ab", 150) + "x", 0.0033222591362126247},
	} {
		golden.Close(t, []float64{SequenceRatio(tc.a, tc.b)}, []float64{tc.want}, 1e-15)
	}
}

func FuzzNormalizeAnswer(f *testing.F) {
	for _, s := range []string{"The cat's, dog.", "1,000", "\xff.", "a.b.é", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := NormalizeAnswer(s)
		if strings.Contains(n, "  ") || n != strings.TrimSpace(n) {
			t.Errorf("%q: got %q, want single spaces", s, n)
		}
		if len(s) >= 200 { // quadratic, and frequent letters no longer count
			return
		}
		if r := SequenceRatio(s, s); r != 1 {
			t.Errorf("%q against itself: got %v, want 1", s, r)
		}
	})
}
