package sweepreport

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// compareBest compares the best setting with those behind it, and all of them with the baselines, on
// the held-out questions (else on val), from the evals.jsonl of their jobs.
func (v *View) compareBest() {
	var best []arms.ComparedArm
	if v.Unranked {
		return
	}
	for _, s := range v.settings {
		if s.Class() != 0 || len(best) == maxCompared {
			break
		}
		if v.readRuns(s, v.Feasible); len(s.runs) > 0 {
			best = append(best, arms.ComparedArm{Name: page.CodeList(s.Overrides), Runs: s.runs})
		}
	}
	if len(best) == 0 {
		return
	}
	split, metric, ok := arms.JudgedBy(best[0].Runs[0])
	if !ok {
		return
	}
	ranked := 0
	if v.chosenOn(split, metric) {
		ranked = v.rankings()
	}
	if tables := arms.ArmTables(best, func(s, m string) bool { return s == split && m == metric }, ranked); len(tables) > 0 {
		v.verdicts = &tables[0]
		if metric != "accuracy" { // the field's measure, a family of its own
			v.accuracy = arms.ArmTables(best, func(s, m string) bool { return s == split && m == "accuracy" }, ranked)
		}
		v.verdicts.Reference = "the best setting"
		if apart, others := v.verdicts.Apart(); apart < others {
			v.verdicts.Reference = "the first setting"
		}
	}
}

// chosenOn says whether the sweep ranks its settings by scores of a split: then the best of them is the luckiest too.
func (v *View) chosenOn(split, metric string) bool {
	return slices.ContainsFunc(v.Opt.Objectives, func(o sweeps.Objective) bool {
		return strings.HasPrefix(o.Name, "eval."+split+".") || split == "val" && strings.HasPrefix(o.Name, "val_") || o.Name == metric
	})
}

// rankings is how many comparisons a ranking of the settings makes: each with each other, and with two baselines.
func (v *View) rankings() int {
	n := list.Count(v.settings, func(s *setting) bool { return s.Class() == 0 })
	return n*(n-1)/2 + 2*n
}

func (v *View) writeVerdicts(d *page.Document) {
	t := v.verdicts
	if t == nil {
		return
	}
	d.Heading(2, "Verdicts")
	judged := "what the jobs ended with"
	if _, err := results.EvaluationOf(v.runs()[0], t.Split, t.Metric, record.PolicyBest); err == nil {
		judged = "the jobs' best checkpoints"
	}
	text := fmt.Sprintf("Mean %s of %s, on the questions of %s.", page.Plain(results.MetricName(t.Metric)), judged, page.Plain(t.Split))
	if n := len(t.Rows); n > 1 {
		text += fmt.Sprintf(" The best %d settings stand in the order of %s, and the others are held against %s, question by question and "+
			"averaged over seeds.", n, page.Plain(v.Opt.Objectives[0].Name), t.Reference)
	}
	if v.chosenOn(t.Split, t.Metric) {
		text += " The settings were ranked by these questions, which flatters the best one a little."
	}
	d.Paragraph("%s %s", text, stats.FamilyNote(v.correctedFor(t)))
	t.WriteTable(d)
}

// correctedFor says for what the verdicts of a table are corrected.
func (v *View) correctedFor(t *arms.ArmTable) string {
	if v.chosenOn(v.verdicts.Split, v.verdicts.Metric) {
		return "the " + page.Plural(max(len(t.Made()), v.rankings()), "comparison") + " that rank the settings"
	}
	return "the " + page.Plural(len(t.Made()), "comparison") + " of this table"
}

// writeAccuracies tells the accuracy of the settings that the verdicts compare.
func (v *View) writeAccuracies(d *page.Document) {
	if len(v.accuracy) > 0 {
		d.Heading(2, "Verdicts by accuracy")
	}
	for _, t := range v.accuracy {
		v.writeAccuracy(d, &t)
	}
}

func (v *View) writeAccuracy(d *page.Document, t *arms.ArmTable) {
	rows, over := t.Told()
	table := page.LinesOf(rows)
	cell := func(c *arms.ArmComparison) string {
		gain, _, _, verdict := c.Cells()
		return strings.Trim(gain+" "+verdict, "– ")
	}
	table.Column("setting", func(r arms.Told) string { return r.Name })
	table.Column(">accuracy", func(r arms.Told) string { return meanCell(r.Arm) })
	table.Column(">gain over "+over, func(r arms.Told) string { return cell(r.Gain) })
	if len(t.Rows) > 1 {
		table.Column(">minus "+v.verdicts.Reference, func(r arms.Told) string { return cell(r.Difference) })
	}
	d.Paragraph("The accuracy of the same settings on the same questions, with verdicts corrected for %s (Holm):", v.correctedFor(t))
	d.Table(table.Header, table.Rows)
	for _, note := range stats.Notes(table.Rows) {
		d.Paragraph("%s", note)
	}
}
