package vqa

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
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
	Dataset Report
}

// Recorded by running the reference's metric, whose string rules are the official ones.
func TestNormalizeAnswerEqualsTheReference(t *testing.T) {
	var g vqaGolden
	golden.JSON(t, "../testdata/vqa_metric.json", &g)
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

func readVQA(t *testing.T) ([]Annotation, []Result) {
	t.Helper()
	var file struct{ Annotations []Annotation }
	golden.JSON(t, "../testdata/vqa_annotations.json", &file)
	var results []Result
	golden.JSON(t, "../testdata/vqa_results.json", &results)
	return file.Annotations, results
}

// The whole evaluation of 36 questions, some with ground truths that lack an id, to the last digit.
func TestEvaluateVQAEqualsTheReference(t *testing.T) {
	var g vqaGolden
	golden.JSON(t, "../testdata/vqa_metric.json", &g)
	annotations, results := readVQA(t)
	got, err := Evaluate(annotations, results, true)
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
	standard, err := Evaluate(annotations, results, false)
	if err != nil {
		t.Fatal(err)
	}
	compat, _ := Evaluate(annotations, results, true)
	var differ []int64
	for id := range standard.ByQuestion {
		if standard.ByQuestion[id] != compat.ByQuestion[id] {
			differ = append(differ, id)
		}
	}
	if len(differ) == 0 || len(differ) > 3 { // those without distinct answer ids
		t.Errorf("standard and compat differ on questions %v, want the few without answer ids", differ)
	}

	if _, err := Evaluate(annotations, append(results, Result{QuestionID: 7}), false); err == nil ||
		!strings.Contains(err.Error(), "question 7: no such question") {
		t.Errorf("unknown question: got %v", err)
	}
	if _, err := Evaluate(annotations, append(results, results[0]), false); err == nil || !strings.Contains(err.Error(), "two results") {
		t.Errorf("double result: got %v", err)
	}
	if _, err := Evaluate(annotations, nil, false); err == nil {
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
		{"lower case as Python has it", "i\u0307stanbul", ten(4, "\u0130stanbul"), false, 1},
		{"a sigma that ends a word", "σοφος", ten(4, "ΣΟΦΟΣ"), false, 1},
		{"line breaks and outer spaces go", " red\nblue ", ten(4, "red blue"), false, 1},
		{"no ground truth", "cat", nil, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := strings.Join(tc.answers, "|")
			golden.Close(t, []float64{Accuracy(tc.prediction, tc.answers, tc.compat)}, []float64{tc.want}, 1e-15)
			if strings.Join(tc.answers, "|") != before {
				t.Error("the caller's answers were changed")
			}
		})
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
	})
}
