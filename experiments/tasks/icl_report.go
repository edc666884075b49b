package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// answered is what a method's examples were worth: the official accuracy of every question, for each seed.
type answered struct {
	method  string
	shots   int
	runs    []map[int64]float64 // by seed: the accuracy by question, 0 to 1
	folders []string
	cost    Inference // of all seeds
	versus  stats.Paired
}

// add joins the answers of another seed.
func (a *answered) add(b *answered) {
	if len(a.runs) == 0 {
		a.cost = Inference{Model: b.cost.Model}
	}
	a.runs, a.folders = append(a.runs, b.runs...), append(a.folders, b.folders...)
	a.cost.Scored += b.cost.Scored
	a.cost.Asked += b.cost.Asked
	a.cost.Known += b.cost.Known
	a.cost.Tokens += b.cost.Tokens
	a.cost.Seconds += b.cost.Seconds
}

// scores are the questions' accuracies, each the mean over the seeds.
func (a *answered) scores(questions []int64) []float64 {
	out := make([]float64, len(questions))
	for i, q := range questions {
		for _, of := range a.runs {
			out[i] += of[q] / float64(len(a.runs))
		}
	}
	return out
}

// selectionFile is a line of selections.jsonl beside the report: what a method showed, and where the rest is.
type selectionFile struct {
	Method  string   `json:"method"`
	Shots   int      `json:"shots"`
	Folders []string `json:"folders"` // one a seed, with selections.jsonl, results.json and infer.json
}

// report compares the methods question by question and writes the comparison.
func (l *loop) report(all []*answered) error {
	var questions, images []int64
	for _, a := range l.annotations {
		if _, asked := all[0].runs[0][a.QuestionID]; asked {
			questions, images = append(questions, a.QuestionID), append(images, a.ImageID)
		}
	}
	reference := map[int]*answered{} // by shots: the first baseline
	var family []*stats.Paired
	for _, a := range all {
		ref := reference[a.shots]
		if ref == nil {
			reference[a.shots] = a
		} else {
			var err error
			a.versus, err = stats.PairedDifference(a.scores(questions), ref.scores(questions), images, 0, stats.DefaultOptions())
			if err != nil {
				return err
			}
			family = append(family, &a.versus)
		}
		e := record.Evaluation{Split: "held_out", Policy: a.method, Metric: "accuracy", Shots: a.shots, QueryIDs: questions,
			Scores: a.scores(questions), Clusters: images}
		fields := map[string]any{"split": e.Split, "policy": e.Policy, "shots": e.Shots, e.Metric: e.Mean()}
		if err := l.job.Log.Record(record.KindEval, "", 0, 0, 0, fields); err != nil {
			return err
		}
		if err := l.job.Log.Scores(e); err != nil {
			return err
		}
	}
	stats.Settle(family)
	return l.write(l.table(all, reference, questions), all)
}

// table is the comparison: a row for each method and number of examples.
func (l *loop) table(all []*answered, reference map[int]*answered, questions []int64) *page.Table {
	first := l.Baselines[0]
	t := &page.Table{Title: "Answers"}
	for _, c := range []string{"method", ">examples", ">seeds", ">accuracy (%)", "95% interval", ">over " + first, "95% interval of it",
		"verdict", ">scored", ">asked", ">known", ">prompt tokens", ">seconds"} {
		t.Columns = append(t.Columns, page.NewTable([]string{c}, nil).Columns...)
	}
	for _, a := range all {
		mean, interval := stats.MeanInterval(a.scores(questions), stats.DefaultOptions().Level)
		row := []any{a.method, a.shots, len(a.runs), page.Markup(fmt.Sprintf("%.1f", 100*mean)), "", nil, nil, nil, int(a.cost.Scored),
			int(a.cost.Asked), int(a.cost.Known), int(a.cost.Tokens), page.Markup(fmt.Sprintf("%.1f", a.cost.Seconds))}
		if interval != nil {
			row[4] = fmt.Sprintf("%.1f to %.1f", 100*interval.Low, 100*interval.High)
		}
		if reference[a.shots] != a {
			low, high := page.Fixed(100*a.versus.Interval.Low, 1), page.Fixed(100*a.versus.Interval.High, 1)
			row[5], row[6], row[7] = page.Markup(page.Fixed(100*a.versus.Mean, 1)), low+" to "+high, stats.VerdictCell(a.versus)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// write writes report.md, the table for papers and programs, and where every method's selections are.
func (l *loop) write(t *page.Table, all []*answered) error {
	if err := l.writeAnnotations(); err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, a := range all {
		text, err := json.Marshal(selectionFile{a.method, a.shots, a.folders})
		if err != nil {
			return err
		}
		lines.Write(append(text, '\n'))
	}
	if err := atomicfile.Write(filepath.Join(l.job.Dir, "selections.jsonl"), lines.Bytes(), 0o644); err != nil {
		return err
	}
	var report bytes.Buffer
	fmt.Fprintf(&report, "# %s\n\nOfficial VQA accuracy of the model's answers to %s. Differences are to `%s` on the same questions, paired, "+
		"with intervals and tests corrected for all of them together (Holm); a question's accuracy is the mean over the seeds.\n\n", t.Title,
		page.Plural(len(l.annotations), "held-out question"), l.Baselines[0])
	forms := map[string]func(io.Writer) error{"comparison.md": t.Markdown, "comparison.tex": t.LaTeX, "comparison.csv": t.CSV}
	for name, write := range forms {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		if err := atomicfile.Write(filepath.Join(l.job.Dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if err := t.Markdown(&report); err != nil {
		return err
	}
	fmt.Fprintf(&report, "\nBeams: `%s`. Pools of the held-out questions: `%s`. `scored` are prompts scored to choose "+
		"examples, `asked` those that the model computed, `known` those that its store answered. The table is also in comparison.csv and "+
		"comparison.tex, the selections in the folders that selections.jsonl names.\n", l.beams, l.pools)
	if err := page.WriteText(l.job.Dir, report.String()); err != nil {
		return err
	}
	if err := t.ConsoleWithin(stdout.Writer(), stdout.Width()); err != nil {
		return err
	}
	stdout.Printf("report: %s\n", filepath.Join(l.job.Dir, "report.md"))
	return nil
}
