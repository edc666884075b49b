package tasks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/conversation"
	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/vqa"
)

// evaluation is evaluate.json: the official accuracies, in percent, and what they were computed from.
type evaluation struct {
	Metric    string         `json:"metric"`
	Compat    *string        `json:"compat"`
	Results   string         `json:"results"`             // file
	Truth     string         `json:"annotations"`         // file
	Rule      string         `json:"missing"`             // what missing results count as
	Questions int            `json:"questions"`           // scored
	Annotated int            `json:"annotated_questions"` // in the annotation file
	Missing   int            `json:"missing_results"`     // annotated, but without a result
	ByType    map[string]int `json:"questionTypeCounts"`
	ByAnswer  map[string]int `json:"answerTypeCounts"`
	vqa.Report
}

// Best is what a sweep compares.
func (e evaluation) Best() *record.BestSummary {
	return &record.BestSummary{Metric: "accuracy", Mode: "max", Value: record.Number(e.Overall / 100)}
}

func evaluate(ctx context.Context, j *job.Job) error {
	opt, name := *evaluateOf(j.Config), "evaluate.json"
	if opt.Metric == "rouge" {
		name = "rouge.jsonl"
	}
	out := option.Or(opt.Out, filepath.Join(j.Dir, name))
	inputs := map[string]*string{"evaluate.results": opt.Results, "evaluate.annotations": opt.Annotations,
		"evaluate.questions": opt.Questions, "evaluate.predictions": opt.Predictions, "evaluate.references": opt.References}
	if err := PrepareOut("evaluate.out", out, inputs, j.Config.DryRun); err != nil {
		return err
	}
	switch opt.Metric {
	case "rouge":
		return evaluateRouge(ctx, j, out)
	case "cider":
		return evaluateCaptions(j, out)
	}
	annotations, related, err := readAnnotations(*opt.Annotations, j.Config.Eval.GroupedBy())
	if err != nil {
		return err
	}
	if err := workload.RecordClusters(j, workload.Clusters{opt.Metric: related}); err != nil {
		return err
	}
	results, err := readResults(*opt.Results)
	if err != nil {
		return err
	}
	if opt.Questions != nil {
		if err := checkQuestions(*opt.Questions, annotations, results); err != nil {
			return err
		}
	}
	scored, missing, err := complete(opt, annotations, results)
	if err != nil {
		return err
	}
	report, err := vqa.Evaluate(annotations, scored, j.Config.Compat != nil)
	if err != nil {
		return fmt.Errorf("%s: %w", *opt.Results, err)
	}
	e := evaluation{Metric: opt.Metric, Compat: j.Config.Compat, Results: *opt.Results, Truth: *opt.Annotations, Rule: opt.Rule(),
		Questions: len(scored), Annotated: len(annotations), Missing: missing, Report: report}
	e.ByType, e.ByAnswer = map[string]int{}, map[string]int{}
	for _, a := range annotations {
		if _, scored := e.ByQuestion[a.QuestionID]; scored {
			e.ByType[cmp.Or(a.QuestionType, "other")]++
			e.ByAnswer[cmp.Or(a.AnswerType, "other")]++
		}
	}
	warnOfUnanswered(j, *opt.Results, unansweredQuestions, missing, len(annotations))
	asked := list.Map(annotations, func(a vqa.Annotation) string {
		return asked(a.QuestionID, list.Map(a.Answers, func(x vqa.Answer) string { return x.Answer }))
	})
	if err := j.LookAt(asked, e.Metric, e.Report, "accuracy"); err != nil || j.Config.DryRun {
		return err
	}
	if err := keep(j, e, out); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(filepath.Join(j.Dir, "results.json"), results); err != nil { // in the official format
		return err
	}
	for _, row := range e.rows() {
		stdout.Printf("%-34s %9d %10.2f\n", row.name, row.n, row.accuracy)
	}
	stdout.Printf("evaluation: %d questions → %s\n", e.Questions, out)
	j.Evaluation = e
	ids := list.Map(scored, func(s vqa.Result) int64 { return s.QuestionID })
	scores := list.Map(ids, func(id int64) float64 { return e.ByQuestion[id] / 100 }) // for comparisons of runs question by question
	return j.RecordEvaluation(map[string]any{"accuracy": e.Overall / 100},
		record.Evaluation{Split: e.Metric, Policy: "results", Metric: "accuracy", QueryIDs: ids, Scores: scores})
}

// asked is a question, or an image, as the ledger of looks tells it from others.
func asked(id any, truths []string) string { return fmt.Sprintf("%v %q", id, truths) }

// readAnnotations reads an annotation file, and what its questions have in common: their image, or the value of a key.
func readAnnotations(path, by string) (all []vqa.Annotation, related map[int64]string, err error) {
	var file struct {
		Annotations []json.RawMessage `json:"annotations"`
	}
	if err := readNamed(path, "evaluate.annotations", "read VQA annotations: ", &file); err != nil {
		return nil, nil, err
	}
	if len(file.Annotations) == 0 {
		return nil, nil, fmt.Errorf("%s: read VQA annotations: no annotations: want an object with a list annotations", path)
	}
	if by == "image" {
		by = "image_id"
	}
	related = map[int64]string{}
	seen := make(map[int64]bool, len(file.Annotations))
	for i, raw := range file.Annotations {
		var a vqa.Annotation
		switch err := jsonwords.Unmarshal(raw, &a); {
		case err != nil:
			return nil, nil, fmt.Errorf("%s: read VQA annotations: annotations[%d]: %w", path, i, err)
		case seen[a.QuestionID]:
			return nil, nil, fmt.Errorf("%s: question %d is annotated twice", path, a.QuestionID)
		case len(a.Answers) == 0:
			return nil, nil, fmt.Errorf("%s: question %d has no answers", path, a.QuestionID)
		}
		all, seen[a.QuestionID] = append(all, a), true
		if name := conversation.Value(raw, by); name != "" {
			related[a.QuestionID] = name
		}
	}
	return all, related, nil
}

// openNamed opens a file; an absent one is explained by the key that names it.
func openNamed(path, key string) (*os.File, error) {
	f, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage.Errorf("%s: no such file: set %s to an existing one", path, key)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return f, nil
}

// readWhole reads a text in UTF-8, which key names, without its byte order mark.
func readWhole(path, key string) ([]byte, error) {
	f, err := openNamed(path, key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	if err == nil {
		err = jsonwords.CheckUnicode(raw) // else any two letters that were lost would be equal
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return bytes.TrimPrefix(raw, []byte("\ufeff")), nil
}

// readNamed reads a file of one JSON value, which key names. about begins what is said of another file.
func readNamed(path, key, about string, into any) error {
	raw, err := readWhole(path, key)
	if err != nil {
		return err
	}
	if err := jsonwords.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %s%w", path, about, err)
	}
	return nil
}

func readResults(path string) ([]vqa.Result, error) {
	return entries(path, `[{"question_id": 1, "answer": "…"}, …]`, "question", parseResult, func(r vqa.Result) int64 { return r.QuestionID })
}

// entries reads a result file, a JSON list of a form or one object a line. No two results are of one question, or image.
func entries[T any](path, form, of string, parse func(entry []byte) (T, error), id func(T) int64) ([]T, error) {
	text, err := readWhole(path, "evaluate.results")
	if err != nil {
		return nil, err
	}
	var raw []json.RawMessage
	kind := "line"
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '[' {
		kind = "entry"
		if err := jsonwords.Unmarshal(trimmed, &raw); err != nil {
			return nil, fmt.Errorf("%s: not an official result file %s: %w", path, form, err)
		}
	} else {
		for line := range bytes.Lines(text) {
			raw = append(raw, bytes.TrimSpace(line))
		}
	}
	out := make([]T, 0, len(raw))
	at := make(map[int64]int, len(raw))
	for i, entry := range raw {
		if len(entry) == 0 {
			continue
		}
		result, err := parse(entry)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %d: %w", path, kind, i+1, err)
		}
		if first, twice := at[id(result)]; twice {
			return nil, fmt.Errorf("%s: %s %d: %s %d has a result already, in %s %d", path, kind, i+1, of, id(result), kind, first)
		}
		at[id(result)] = i + 1
		out = append(out, result)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no results: want %s", path, form)
	}
	return out, nil
}

// parseResult reads one result. A null answer is an empty one, as in the reference.
func parseResult(entry []byte) (vqa.Result, error) {
	var fields map[string]json.RawMessage
	if err := jsonwords.Unmarshal(entry, &fields); err != nil {
		return vqa.Result{}, fmt.Errorf("want an object with question_id and answer: %w", err)
	}
	id, ok := fields["question_id"]
	if !ok {
		if id, ok = fields["id"]; !ok {
			return vqa.Result{}, errors.New("no question_id")
		}
	}
	var out vqa.Result
	if err := jsonwords.Unmarshal(bytes.Trim(id, `"`), &out.QuestionID); err != nil {
		return out, fmt.Errorf("question_id is %s, want an integer", id)
	}
	key := "answer"
	if _, ok := fields[key]; !ok {
		key = "completion"
	}
	value, ok := fields[key]
	if !ok {
		return out, fmt.Errorf("question %d: no answer", out.QuestionID)
	}
	if err := jsonwords.Unmarshal(value, &out.Answer); err != nil { // null leaves it empty
		return out, fmt.Errorf("question %d: %s is %.40s, want text", out.QuestionID, key, value)
	}
	if key == "completion" {
		out.Answer = vqa.ExtractAnswer(out.Answer)
	}
	return out, nil
}

// checkQuestions refuses results and annotations that belong to other questions.
func checkQuestions(path string, annotations []vqa.Annotation, results []vqa.Result) error {
	var file struct {
		Questions []struct {
			ID *int64 `json:"question_id"`
		} `json:"questions"`
	}
	if err := readNamed(path, "evaluate.questions", "not an official question file: ", &file); err != nil {
		return err
	}
	known := make(map[int64]bool, len(file.Questions))
	for i, q := range file.Questions {
		if q.ID == nil {
			return fmt.Errorf("%s: questions[%d] has no question_id", path, i)
		}
		known[*q.ID] = true
	}
	if len(known) == 0 {
		return fmt.Errorf("%s: no questions: want an object with a list questions", path)
	}
	for _, r := range results {
		if !known[r.QuestionID] {
			return fmt.Errorf("%s: question %d, which has a result, is not among its %d questions", path, r.QuestionID, len(known))
		}
	}
	for _, a := range annotations {
		if !known[a.QuestionID] {
			return fmt.Errorf("%s: question %d, which is annotated, is not among its %d questions: these files belong to different "+
				"sets", path, a.QuestionID, len(known))
		}
	}
	return nil
}

// noAnswer matches no ground truth, not even an empty one.
const noAnswer = "\x00"

// unanswered returns the ground truths without a result, which evaluate.missing=error refuses. what says what they are and lack.
func unanswered[T comparable](opt EvaluateOptions, file, what string, truths []T, has map[T]bool) (absent []T, err error) {
	absent = slices.DeleteFunc(slices.Clone(truths), func(id T) bool { return has[id] })
	if len(absent) > 0 && opt.Rule() == "error" {
		names := list.Map(absent, func(id T) string { return fmt.Sprint(id) })
		return nil, fmt.Errorf("%s: %d of %d %s: %s (evaluate.missing=skip leaves them out, zero scores them 0)", file, len(absent),
			len(truths), what, some(names, 5))
	}
	return absent, nil
}

// warnOfUnanswered says how many ground truths have no result, and what they count as.
func warnOfUnanswered(j *job.Job, file, what string, missing, of int) {
	how := "are left out (evaluate.missing=error refuses, zero scores them 0)"
	if evaluateOf(j.Config).Rule() == "zero" {
		how = "score 0"
	}
	if missing > 0 {
		j.Log.Warnf("%s: %d of %d %s: they %s", file, missing, of, what, how)
	}
}

// complete returns the results to score and how many annotated questions have none.
func complete(opt EvaluateOptions, annotations []vqa.Annotation, results []vqa.Result) (scored []vqa.Result, missing int, err error) {
	has := list.SetBy(results, func(r vqa.Result) int64 { return r.QuestionID })
	ids := list.Map(annotations, func(a vqa.Annotation) int64 { return a.QuestionID })
	absent, err := unanswered(opt, *opt.Results, unansweredQuestions, ids, has)
	if opt.Rule() == "zero" {
		for _, id := range absent {
			results = append(slices.Clip(results), vqa.Result{QuestionID: id, Answer: noAnswer})
		}
	}
	return results, len(absent), err
}

const unansweredQuestions = "annotated questions have no result"

// keep writes what an evaluation found to out, and to report.md and report.html.
func keep(j *job.Job, e judged, out string) error {
	j.Begun = true
	if err := atomicfile.WriteJSON(out, e); err != nil {
		return err
	}
	return writeJudged(j.Dir, e)
}

type accuracyRow struct {
	name     string
	n        int
	accuracy float64 // percent
}

// rows lists the accuracies: overall, then by answer type and question type in alphabetical order.
func (e evaluation) rows() []accuracyRow {
	rows := []accuracyRow{{"overall", e.Questions, e.Overall}}
	for _, table := range []struct {
		title    string
		accuracy map[string]float64
		n        map[string]int
	}{{"answer type ", e.ByAnswerType, e.ByAnswer}, {"question type ", e.ByQuestionType, e.ByType}} {
		for _, name := range slices.Sorted(maps.Keys(table.accuracy)) {
			rows = append(rows, accuracyRow{table.title + name, table.n[name], table.accuracy[name]})
		}
	}
	return rows
}

func (e evaluation) markdown() string {
	var b strings.Builder
	how := "the standard evaluation"
	if e.Compat != nil {
		how = "compat=" + *e.Compat
	}
	fmt.Fprintf(&b, "# VQA accuracy\n\n`%s` against `%s`, %s: %d of %d annotated questions", e.Results, e.Truth, how, e.Questions,
		e.Annotated)
	if e.Missing > 0 {
		fmt.Fprintf(&b, ", %d without a result (evaluate.missing=%s)", e.Missing, e.Rule)
	}
	b.WriteString(".\n\n| | Questions | Accuracy (%) |\n|---|---:|---:|\n")
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, row := range e.rows() {
		fmt.Fprintf(&b, "| %s | %d | %.2f |\n", cell.Replace(row.name), row.n, row.accuracy)
	}
	b.WriteString("\nTo compare two evaluations question by question, with intervals: `run report FOLDER_A FOLDER_B`.\n")
	return b.String()
}

// judged is what a task=evaluate found.
type judged interface{ markdown() string }

// writeJudged writes the report of an evaluation.
func writeJudged(dir string, e judged) error {
	text, err := judgedText(dir, e)
	if err != nil {
		return err
	}
	return page.WriteText(dir, text)
}

// judgedText is the report of an evaluation in a folder, with the looks that it was.
func judgedText(dir string, e judged) (string, error) {
	own, err := record.ReadLooks(dir)
	text := e.markdown()
	if len(own.Looks) > 0 { // all metrics have one
		text += "\n" + own.Looks[0].Sentence() + "\n"
	}
	return text, err
}

// RewriteEvaluation writes the report.md of a finished task=evaluate again.
func RewriteEvaluation(dir string) error {
	text, err := EvaluationReport(dir)
	if err != nil {
		return err
	}
	return page.WriteText(dir, text)
}

// EvaluationReport is the report of a finished task=evaluate, from its summary.
func EvaluationReport(dir string) (string, error) {
	var summary struct{ Evaluation json.RawMessage }
	path := filepath.Join(dir, "summary.json")
	text, err := regular.ReadFile(path)
	if err != nil {
		return "", err
	}
	if err := jsonwords.Unmarshal(text, &summary); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if summary.Evaluation == nil {
		return "", fmt.Errorf("%s: the evaluation did not finish: there is nothing to report", path)
	}
	var kind struct{ Metric string }
	_ = jsonwords.Unmarshal(summary.Evaluation, &kind) // what is wrong with it is said below
	var outcome judged = &evaluation{}
	switch kind.Metric {
	case "rouge":
		outcome = &rougeEvaluation{}
	case "cider":
		outcome = &captionEvaluation{}
	}
	if err := jsonwords.Unmarshal(summary.Evaluation, outcome); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return judgedText(dir, outcome)
}
