package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"fulcrum/experiments/job"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/parallel"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
	"fulcrum/rewardutil/text"
)

// This file is task=evaluate with evaluate.metric=rouge: texts somebody generated, against reference texts.

// textLine is one line of evaluate.predictions or evaluate.references. A prediction may be a line of
// generate.out, whose text is its completion.
type textLine struct {
	ID         json.RawMessage `json:"id"`
	Text       *string         `json:"text"`
	Completion *string         `json:"completion"`
}

// rougeLine is one line of evaluate.out.
type rougeLine struct {
	ID json.RawMessage `json:"id"`
	text.RougeScores
}

// rougeEvaluation is what summary.json keeps of the scores: means over the texts with 95 % intervals.
type rougeEvaluation struct {
	Metric      string         `json:"metric"`
	Predictions string         `json:"predictions"` // file
	References  string         `json:"references"`  // file
	Stemmer     bool           `json:"stemmer"`
	Sentences   string         `json:"sentences"`           // of rougeLsum: lines or split
	Rule        string         `json:"missing"`             // what missing predictions count as
	Texts       int            `json:"texts"`               // scored
	Missing     int            `json:"missing_predictions"` // references without a prediction
	Measures    []rougeMeasure `json:"measures"`
}

// rougeMeasure is one ROUGE over all texts.
type rougeMeasure struct {
	Name      string  `json:"name"`
	Precision rougeCI `json:"precision"`
	Recall    rougeCI `json:"recall"`
	FMeasure  rougeCI `json:"fmeasure"`
}

// rougeCI is a mean and its 95 % interval, which a single text has not.
type rougeCI struct {
	Mean     float64         `json:"mean"`
	Interval *stats.Interval `json:"interval,omitempty"`
}

// idText is a line with the bytes of its id as the key that joins files.
type idText struct {
	id     string // JSON
	text   string
	number int // of the line, from 1
}

// evaluateRouge scores every prediction against the reference of the same id.
func evaluateRouge(ctx context.Context, j *job.Job, out string) error {
	opt := *evaluateOf(j.Config)
	predictions, err := readTexts(*opt.Predictions, "evaluate.predictions", true)
	if err != nil {
		return err
	}
	references, err := readTexts(*opt.References, "evaluate.references", false)
	if err != nil {
		return err
	}
	predictions, missing, err := matchTexts(opt, predictions, references)
	if err != nil {
		return err
	}
	target := make(map[string]string, len(references))
	for _, x := range references {
		target[x.id] = x.text
	}
	if n := list.Count(predictions, func(x idText) bool { return !text.RougeHas(target[x.id]) }); n > 0 {
		j.Log.Warnf("%s: %d of %d references have no word of ASCII letters or digits, which alone ROUGE counts: they score 0",
			*opt.References, n, len(predictions))
	}
	lines := make([]rougeLine, len(predictions))
	err = parallel.Each(ctx, len(lines), 0, func(i int) error {
		x := predictions[i]
		lines[i] = rougeLine{json.RawMessage(x.id), text.RougeBySentences(target[x.id], x.text, opt.Stemmer, opt.Sentences)}
		return nil
	})
	if err != nil {
		return err
	}
	e := rougeEvaluation{Metric: opt.Metric, Predictions: *opt.Predictions, References: *opt.References, Stemmer: opt.Stemmer,
		Sentences: opt.Sentences, Rule: opt.Rule(), Texts: len(lines), Missing: missing}
	e.measure(lines)
	warnOfUnanswered(j, *opt.Predictions, "references have no prediction", missing, len(references))
	asked := list.Map(references, func(x idText) string { return asked(x.id, []string{x.text}) })
	if err := j.LookAt(asked, e.Metric, lines, text.RougeNames()...); err != nil || j.Config.DryRun {
		return err
	}
	if err := writeRouge(j, e, lines, out); err != nil {
		return err
	}
	for _, m := range e.Measures {
		fmt.Fprintf(stdout.Writer(), "%-10s precision %.4f  recall %.4f  F1 %s\n", m.Name, m.Precision.Mean, m.Recall.Mean, m.FMeasure)
	}
	fmt.Fprintf(stdout.Writer(), "evaluation: %d texts → %s\n", e.Texts, out)
	return recordRouge(j, e, lines)
}

// readTexts reads a file of one {"id", "text"} a line.
func readTexts(path, key string, completions bool) ([]idText, error) {
	var out []idText
	first := map[string]int{} // line of each id
	err := eachLineOf(path, key, func(number int, raw []byte) error {
		x, err := parseText(raw, completions)
		if err != nil {
			return err
		}
		if line, twice := first[x.id]; twice {
			return fmt.Errorf("the id %s is that of line %d already", x.id, line)
		}
		first[x.id], x.number = number, number
		out = append(out, x)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no text: want one {\"id\", \"text\"} a line", path)
	}
	return out, nil
}

func parseText(raw []byte, completions bool) (idText, error) {
	var line textLine
	if err := jsonwords.Unmarshal(raw, &line); err != nil {
		return idText{}, fmt.Errorf("want one JSON object a line: %w", err)
	}
	if len(line.ID) == 0 || strings.ContainsRune("{[ntf", rune(line.ID[0])) { // an object, a list, null, true, false
		return idText{}, errors.New(`want an "id", a text or a number`)
	}
	id, err := oneSpelling(line.ID)
	if err != nil {
		return idText{}, err
	}
	text := line.Text
	if text == nil && completions {
		text = line.Completion
	}
	if text == nil {
		return idText{}, fmt.Errorf(`id %s: want a "text"`, id)
	}
	return idText{id: id, text: *text}, nil
}

// oneSpelling writes a JSON text without needless escapes: "é" and "\u00e9" are one id.
func oneSpelling(id json.RawMessage) (string, error) {
	var name string
	if json.Unmarshal(id, &name) != nil {
		return string(id), nil
	}
	text, err := jsonwords.Marshal(name)
	return string(text), err
}

// otherKind says that an id is there as a text in place of a number, or the reverse.
func otherKind(id string, known map[string]bool) string {
	if quoted := `"` + id + `"`; known[quoted] {
		return ": there it is the text " + quoted
	}
	if bare := strings.Trim(id, `"`); bare != id && known[bare] {
		return ": there it is the number " + bare
	}
	return ""
}

// matchTexts refuses predictions without a reference and treats references without a prediction as
// evaluate.missing says.
func matchTexts(opt EvaluateOptions, predictions, references []idText) (scored []idText, missing int, err error) {
	known, has := list.SetBy(references, func(x idText) string { return x.id }), map[string]bool{}
	for _, x := range predictions {
		if !known[x.id] {
			return nil, 0, fmt.Errorf("%s:%d: the id %s is not in %s%s", *opt.Predictions, x.number, x.id, *opt.References,
				otherKind(x.id, known))
		}
		has[x.id] = true
	}
	ids := list.Map(references, func(x idText) string { return x.id })
	absent, err := unanswered(opt, *opt.Predictions, "references have no prediction", ids, has)
	if opt.Rule() == "zero" {
		predictions = append(slices.Clip(predictions), list.Map(absent, func(id string) idText { return idText{id: id} })...)
	}
	return predictions, len(absent), err
}

// measure fills in the means.
func (e *rougeEvaluation) measure(lines []rougeLine) {
	mean := func(of func(rougeLine) float64) rougeCI {
		m, interval := stats.MeanInterval(list.Map(lines, of), stats.DefaultOptions().Level, 0, 1)
		return rougeCI{m, interval}
	}
	for _, name := range text.RougeNames() {
		e.Measures = append(e.Measures, rougeMeasure{
			Name:      name,
			Precision: mean(func(l rougeLine) float64 { return l.Named(name).Precision }),
			Recall:    mean(func(l rougeLine) float64 { return l.Named(name).Recall }),
			FMeasure:  mean(func(l rougeLine) float64 { return l.Named(name).F1 }),
		})
	}
}

// writeRouge writes the scores of every text to out, and report.md.
func writeRouge(j *job.Job, e rougeEvaluation, lines []rougeLine, out string) error {
	j.Begun = true
	if err := writeLines(out, lines); err != nil {
		return err
	}
	return writeJudged(j.Dir, e)
}

// String is the mean, and the interval where there is one.
func (c rougeCI) String() string {
	if c.Interval == nil {
		return page.Score(c.Mean, 0)
	}
	mean, low, high := page.Estimate(c.Mean, c.Interval.Low, c.Interval.High, page.Unsigned)
	return fmt.Sprintf("%s [%s, %s]", mean, low, high)
}

func (e rougeEvaluation) markdown() string {
	var b strings.Builder
	stems := "without stemming"
	if e.Stemmer {
		stems = "with Porter stems"
	}
	by := "rougeLsum by lines"
	if e.Sentences == text.SentencesSplit {
		by = "rougeLsum by sentences"
	}
	fmt.Fprintf(&b, "# ROUGE\n\n`%s` against `%s`, %s, %s: %d texts", e.Predictions, e.References, stems, by, e.Texts)
	if e.Missing > 0 {
		fmt.Fprintf(&b, ", %d references without a prediction (evaluate.missing=%s)", e.Missing, e.Rule)
	}
	b.WriteString(". Means over the texts with 95 % intervals (Student's t).\n\n| | Precision | Recall | F1 |\n|---|---:|---:|---:|\n")
	for _, m := range e.Measures {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.Name, m.Precision, m.Recall, m.FMeasure)
	}
	b.WriteString("\nTo compare two evaluations text by text, with intervals: `run report FOLDER_A FOLDER_B`.\n")
	return b.String()
}

func (e rougeEvaluation) Best() *record.BestSummary {
	for _, m := range e.Measures {
		if m.Name == "rougeL" {
			return &record.BestSummary{Metric: m.Name, Mode: "max", Value: record.Number(m.FMeasure.Mean)}
		}
	}
	return nil
}

// recordRouge puts the scores where reports find them: an eval row, and every text's F1 for paired comparisons.
func recordRouge(j *job.Job, e rougeEvaluation, lines []rougeLine) error {
	j.Evaluation = e
	means, ids := map[string]any{}, numbered(lines)
	var all []record.Evaluation
	for _, m := range e.Measures {
		means[m.Name] = m.FMeasure.Mean
		scores := list.Map(lines, func(l rougeLine) float64 { return l.Named(m.Name).F1 })
		all = append(all, record.Evaluation{Split: e.Metric, Policy: "predictions", Metric: m.Name, QueryIDs: ids, Scores: scores})
	}
	return j.RecordEvaluation(means, all...)
}

// numbered gives every id a number that another file with the same ids gives it too: itself where all are
// integers, else a hash.
func numbered(lines []rougeLine) []int64 {
	ids := make([]int64, len(lines))
	for i, l := range lines {
		n, err := strconv.ParseInt(string(l.ID), 10, 64)
		if err != nil {
			for k, l := range lines {
				h := fnv.New64a()
				h.Write(l.ID)
				ids[k] = int64(h.Sum64() >> 1)
			}
			return ids
		}
		ids[i] = n
	}
	return ids
}
