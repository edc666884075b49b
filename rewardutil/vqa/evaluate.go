package vqa

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"fulcrum/internal/stat"
)

// VQAAnswer is one annotator's answer. Two answers of a question are the same record, for compat, where
// all fields are equal.
type Answer struct {
	Answer     string          `json:"answer"`
	ID         json.RawMessage `json:"answer_id,omitempty"`
	Confidence json.RawMessage `json:"answer_confidence,omitempty"`
}

// VQAAnnotation is one question of an annotation file.
type Annotation struct {
	QuestionID   int64    `json:"question_id"`
	ImageID      int64    `json:"image_id"`
	QuestionType string   `json:"question_type"`
	AnswerType   string   `json:"answer_type"`
	Answers      []Answer `json:"answers"`
}

// VQAResult is one line of an official result file.
type Result struct {
	QuestionID int64  `json:"question_id"`
	Answer     string `json:"answer"`
}

// VQAReport holds accuracies in percent, rounded to 2 decimals as the official evaluation rounds.
type Report struct {
	Overall        float64            `json:"overall"`
	ByQuestionType map[string]float64 `json:"perQuestionType"`
	ByAnswerType   map[string]float64 `json:"perAnswerType"`
	ByQuestion     map[int64]float64  `json:"perQuestion"`
}

// EvaluateVQA scores results against annotations, over the questions of the result file. compat is that of
// VQAAccuracy, and compares ground truths as records: those without an answer_id cancel each other. A
// question without a type counts as other. One without annotation or with two results is an error.
func Evaluate(annotations []Annotation, results []Result, compat bool) (Report, error) {
	if len(results) == 0 {
		return Report{}, fmt.Errorf("evaluate VQA: no results")
	}
	byID := make(map[int64]Annotation, len(annotations))
	for _, a := range annotations {
		byID[a.QuestionID] = a
	}
	report := Report{ByQuestionType: map[string]float64{}, ByAnswerType: map[string]float64{}, ByQuestion: map[int64]float64{}}
	var all []float64
	byQuestion, byAnswer := map[string][]float64{}, map[string][]float64{}
	for _, r := range results {
		a, ok := byID[r.QuestionID]
		if !ok {
			return Report{}, fmt.Errorf("evaluate VQA: result for question %d: no such question in the annotations", r.QuestionID)
		}
		if _, twice := report.ByQuestion[r.QuestionID]; twice {
			return Report{}, fmt.Errorf("evaluate VQA: question %d has two results", r.QuestionID)
		}
		acc := a.accuracy(r.Answer, compat)
		report.ByQuestion[r.QuestionID] = round2(100 * acc)
		question, answer := cmp.Or(a.QuestionType, "other"), cmp.Or(a.AnswerType, "other")
		all, byQuestion[question], byAnswer[answer] = append(all, acc), append(byQuestion[question], acc), append(byAnswer[answer], acc)
	}
	report.Overall = percent(all)
	for k, of := range byQuestion {
		report.ByQuestionType[k] = percent(of)
	}
	for k, of := range byAnswer {
		report.ByAnswerType[k] = percent(of)
	}
	return report, nil
}

func (a Annotation) accuracy(prediction string, compat bool) float64 {
	answers := slices.Clone(a.Answers)
	return vqaAccuracy(prediction, answers, compat, func(i, j int) bool {
		if !compat {
			return i == j
		}
		x, y := answers[i], answers[j] // normalised by now
		return x.Answer == y.Answer && string(x.ID) == string(y.ID) && string(x.Confidence) == string(y.Confidence)
	})
}

// percent returns the mean of some accuracies in percent.
func percent(accuracies []float64) float64 {
	return round2(100 * stat.Sum(accuracies) / float64(len(accuracies)))
}

// round2 rounds to 2 decimals as Python's round does: the decimal nearest to the exact binary value.
func round2(x float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', 2, 64), 64)
	return r
}
