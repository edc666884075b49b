//go:build !core

package tasks

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"fulcrum/beamdata/icl"
	"fulcrum/experiments/lvlm"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/internal/stdout"
	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// answered is what a method's examples were worth: the official accuracy of every question, for each seed.
type answered struct {
	model   string // one of icl.models; "" = the only one
	method  string
	shots   int
	seeds   []int64
	runs    []map[int64]float64 // by seed: the accuracy by question, 0 to 1
	folders []string
	cost    Inference // of all seeds
}

// add joins the answers of another seed.
func (a *answered) add(b *answered) {
	a.seeds, a.runs, a.folders = append(a.seeds, b.seeds...), append(a.runs, b.runs...), append(a.folders, b.folders...)
	a.cost.Scored += b.cost.Scored
	a.cost.Asked += b.cost.Asked
	a.cost.Known += b.cost.Known
	a.cost.Tokens += b.cost.Tokens
	a.cost.Copied, a.cost.Questions = a.cost.Copied+b.cost.Copied, a.cost.Questions+b.cost.Questions
	a.cost.Seconds += b.cost.Seconds
}

// Inference is infer.json: how the answers of a result file came about.
type Inference struct {
	Method    string        `json:"method"`
	Shots     int           `json:"shots"`
	Questions int           `json:"questions"`
	Scored    int64         `json:"scored"`                    // prompts scored to choose examples
	Asked     int64         `json:"asked"`                     // prompts that the model was asked, scored ones included
	Known     int64         `json:"known"`                     // prompts that the store answered
	Again     int64         `json:"asked_again,omitempty"`     // scores that a server was asked for once more
	Strayed   int64         `json:"differing_again,omitempty"` // of them, those that were not the same
	Copied    int64         `json:"copied"`                    // answers that an example before the question shows
	Tokens    int64         `json:"tokens"`                    // of the prompts that were answered, as far as the model tells
	Seconds   float64       `json:"seconds"`                   // of choosing and answering
	Model     lvlm.Identity `json:"model"`                     //
	Records   string        `json:"records"`                   // digest
	Results   string        `json:"results"`                   // file
}

// spent is what a kind of stages cost that chooses for no question yet.
type spent struct {
	what string
	runs int
	cost Inference
}

// spend adds what a stage cost, unless it failed.
func (l *loop) spend(what, dir string, failed error) error {
	if failed != nil {
		return failed
	}
	s, err := record.ReadSummary(dir)
	if err != nil || s == nil {
		return err
	}
	if l.name != "" {
		what += ", " + l.name
	}
	if n := len(l.spent); n == 0 || l.spent[n-1].what != what {
		l.spent = append(l.spent, spent{what: what})
	}
	of := &l.spent[len(l.spent)-1]
	of.runs++
	of.cost.Asked += int64(s.Data.Counts["asked"])
	of.cost.Known += int64(s.Data.Counts["known"])
	of.cost.Scored = of.cost.Asked + of.cost.Known
	of.cost.Seconds += s.WallSeconds
	return nil
}

// selectionFile is a line of selections.jsonl beside the report: what a method showed, and where the rest is.
type selectionFile struct {
	Model   string   `json:"model,omitempty"` // of icl.models
	Method  string   `json:"method"`
	Shots   int      `json:"shots"`
	Folders []string `json:"folders"` // one a seed, with selections.jsonl, results.json and infer.json
}

// noImage is far from the ids of images.
const noImage = -1 << 62

// report compares the methods question by question and writes the comparison.
func (l *loop) report(all []*answered) error {
	var questions, images []int64
	for _, r := range l.held { // that every method was asked
		missing := func(b *answered) bool { _, asked := b.runs[0][r.ID]; return !asked }
		if !slices.ContainsFunc(all, missing) {
			image := r.ImageID
			if r.Image == "" && image == 0 { // questions without pictures have none in common
				image = noImage + r.ID
			}
			questions, images = append(questions, r.ID), append(images, image)
		}
	}
	metric := "accuracy"
	if l.set.Captions {
		metric = "cider"
	}
	held := list.Map(l.held, func(r icl.Record) string { return asked(r.ID, r.Answers) })
	if err := l.job.LookAt(held, "held_out", list.Map(all, func(a *answered) any { return a.runs }), metric); err != nil {
		return err
	}
	own, err := record.ReadLooks(l.job.Dir)
	if err != nil {
		return err
	}
	var methods []*arms.Method
	for _, a := range all {
		m := &arms.Method{Model: a.model, Name: a.method, Shots: a.shots}
		if !l.set.Captions && a.method != "none" {
			m.Copied = new(float64(a.cost.Copied) / float64(a.cost.Questions))
		}
		m.Arm = arms.Arm{Name: m.Policy(), Metric: metric, Seeds: a.seeds, QueryIDs: questions, Clusters: images}
		for _, of := range a.runs {
			m.Scores = append(m.Scores, list.Map(questions, func(q int64) float64 { return of[q] }))
		}
		e := record.Evaluation{Split: "held_out", Policy: m.Policy(), Metric: m.Metric, Shots: a.shots, QueryIDs: questions,
			Scores: m.QueryScores(), Clusters: images}
		if err := l.job.RecordEvaluation(map[string]any{"shots": e.Shots, e.Metric: e.Mean()}, e); err != nil {
			return err
		}
		m.Look = own.Looked([]record.Evaluation{e})[0].Look
		methods = append(methods, m)
	}
	t, err := arms.CompareMethods(methods)
	if err != nil {
		return err
	}
	return l.write(t, all)
}

// budgets is a table of what everything cost.
func (l *loop) budgets(all []*answered) *page.Table {
	t := page.NewTable([]string{"what", ">examples", ">runs", ">scored", ">asked", ">known", ">prompt tokens", ">seconds"}, nil)
	t.Title, t.Named = "Budgets", 2
	row := func(what string, shots any, runs int, c Inference, tokens any) {
		t.Rows = append(t.Rows, []any{what, shots, runs, int(c.Scored), int(c.Asked), int(c.Known), tokens,
			page.Markup(fmt.Sprintf("%.1f", c.Seconds))})
	}
	for _, s := range l.spent {
		row(s.what, nil, s.runs, s.cost, nil)
	}
	for _, a := range all {
		row("answers, "+(&arms.Method{Model: a.model, Name: a.method}).Policy(), a.shots, len(a.runs), a.cost, int(a.cost.Tokens))
	}
	return t
}

// write writes report.md, the tables for papers and programs, and where every method's selections are.
func (l *loop) write(methods arms.MethodTable, all []*answered) error {
	if err := l.writeAnnotations(); err != nil {
		return err
	}
	lines := list.Map(all, func(a *answered) selectionFile { return selectionFile{a.model, a.method, a.shots, a.folders} })
	if err := writeLines(filepath.Join(l.job.Dir, "selections.jsonl"), lines); err != nil {
		return err
	}
	t, cost := methods.Table("Answers", false), l.budgets(all)
	forms := map[string]func(io.Writer) error{"comparison.md": t.Markdown, "comparison.tex": t.LaTeX,
		"comparison.csv": methods.Table("", true).CSV, "budgets.csv": cost.CSV}
	for name, write := range forms {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		if err := atomicfile.Write(filepath.Join(l.job.Dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if err := page.WriteText(l.job.Dir, l.text(methods, t, cost)); err != nil {
		return err
	}
	if err := t.ConsoleWithin(stdout.Writer(), stdout.Width()); err != nil {
		return err
	}
	stdout.Printf("report: %s\n", filepath.Join(l.job.Dir, "report.md"))
	return nil
}

// text is report.md: what was found, the numbers, what they cost, and where everything lies.
func (l *loop) text(methods arms.MethodTable, t, cost *page.Table) string {
	var d page.Document
	d.Heading(1, "Answers with chosen examples")
	methods.Write(&d, t.Title)
	d.Heading(2, "%s", cost.Title)
	d.Add(cost)
	d.Paragraph("`scored` are prompts that were scored to choose examples, `asked` prompts that the model computed, `known` those that its " +
		"store answered: a stage that was resumed, or that shares its prompts with an earlier one, asks less.")
	d.Heading(2, "Files")
	d.List("The comparison: comparison.csv, comparison.tex, comparison.md; what it cost: budgets.csv.",
		"What every method showed, and what the model said: selections.jsonl names the folders.",
		"For `task=evaluate` with any of their results.json: annotations.json.",
		fmt.Sprintf("Beams of the training questions: `%s`. Pools of the held-out ones: `%s`.", l.relative(l.beams), l.relative(l.pools)))
	return d.Text()
}

// relative is a path as seen from the report.
func (l *loop) relative(path string) string {
	dir, _ := filepath.Abs(l.job.Dir) // where it fails, the next does
	if rel, err := filepath.Rel(dir, path); err == nil {
		return rel
	}
	return path
}
