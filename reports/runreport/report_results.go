package runreport

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// reportResults shows the table of the verdict: every stage on its split, with gains on the same questions.
func reportResults(d *page.Document, run *record.Run, stages []record.StageResult, tables []resultTable) {
	if len(tables) == 0 {
		return
	}
	d.Heading(2, "Results")
	tables[0].report(d, run)
	d.Paragraph("%s%s", run.InItsWords("Gains are differences on the same questions, with paired 95% intervals, each for its own comparison."),
		run.InItsWords(baselineStory(stages)))
}

// reportMoreResults says which checkpoint is the best and shows the other tables.
func reportMoreResults(d *page.Document, run *record.Run, s *record.Summary, tables []resultTable) {
	if len(tables) < 2 && s.Best == nil {
		return
	}
	d.Heading(2, "More results")
	if b := s.Best; b != nil {
		where := fmt.Sprintf("%s, epoch %d", page.Plain(b.Phase), b.Epoch)
		if b.Phase == "" || b.Untrained() {
			where = "the initial policy, which no epoch did better than"
		}
		if b.RuledOut() != "" {
			where = "the initial policy"
		}
		text := fmt.Sprintf("Best checkpoint by %s (%s): %s, %s, [%s](%s).", page.Plain(b.Metric), b.Mode, page.Sig(float64(b.Value), 4), where,
			page.Plain(b.Checkpoint), b.Checkpoint)
		if more := remarks(b); more != "" {
			text += " " + page.Plain(more)
		}
		d.Paragraph("%s", text)
	}
	for i := 1; i < len(tables); i++ {
		tables[i].report(d, run)
	}
}

// report writes a table under its heading.
func (t resultTable) report(d *page.Document, run *record.Run) {
	first := t.rows[0]
	split := first.Split
	if record.HeldOut(split) {
		split += ", held out"
	}
	d.Heading(3, "%s on %s (%s, %s)", page.Capital(results.MetricName(t.metric)), page.Plain(split),
		run.Wording(page.Plural(first.Queries, "query"), page.Plural(first.Queries, run.InItsWords("question"))),
		run.Wording(page.Plural(first.Shots, "shot"), run.InItsWords("answers of up to ")+page.Plural(first.Shots, "token")))
	header := []string{"policy", ">mean ± SE"}
	for _, y := range t.yards {
		header = append(header, ">gain over "+y.Short, "")
	}
	d.Table(header, t.cells())
	d.Paragraph("%s", run.InItsWords(strings.Join(t.notes(), " ")))
	if first.Metric == "reward" {
		reportTerms(d, run, t.rows)
	}
}

// Tables are the result tables of a run's report.
func Tables(run *record.Run) ([]*page.Table, error) {
	stages, err := results.StagesOf(run)
	if err != nil {
		return nil, err
	}
	var d page.Document
	for _, t := range resultTables(stages) {
		t.report(&d, run)
	}
	return d.Tables, nil
}

// notes say how the intervals and verdicts of a table are to be read: what they are corrected for, and why some are
// rough.
func (t resultTable) notes() []string {
	notes := otherGains(t.rows)
	var rough []string
	var chosen, clusters, family int
	for _, r := range t.rows {
		gains := list.Map(results.Yardsticks(), func(y results.Yardstick) *stats.Paired { return *y.Gain(&r) })
		for _, p := range append(gains, r.OverPrevious) {
			if p == nil {
				continue
			}
			chosen, clusters, family = max(chosen, p.ChosenFrom), max(clusters, p.Clusters), max(family, p.Family)
			if p.Rough != "" && p.Changed > 0 && !slices.Contains(rough, p.Rough) {
				rough = append(rough, p.Rough)
			}
		}
	}
	if clusters > 0 {
		notes = append(notes, fmt.Sprintf("Questions that belong together, such as those about one image, count as one: %s.",
			stats.QuestionWords(t.rows[0].Queries, clusters)))
	}
	if chosen > 1 {
		notes = append(notes, fmt.Sprintf("A policy that was chosen from %s by these very questions is judged with intervals and p-values "+
			"corrected for that (Bonferroni).", page.Plural(chosen, "checkpoint")))
	}
	if family > 1 {
		notes = append(notes, fmt.Sprintf("Verdicts on the gains of the %d phases are corrected for their number (Holm), intervals are not.",
			family))
	}
	if note := stats.RoughNote(append(t.cells(), notes)); note != "" && len(rough) == 1 {
		notes = append(notes, stats.Dagger+" rough: "+rough[0]+".")
	} else if note != "" {
		notes = append(notes, note)
	}
	if note := stats.CutNote(t.cells()); note != "" {
		notes = append(notes, note)
	}
	return notes
}

// otherGains are the differences of a table that no column holds: over random, over the phase before; and what speaks against a column.
func otherGains(table []record.StageResult) []string {
	gain := func(s record.StageResult, p *stats.Paired) string {
		cell, _, _, verdict := p.Cells()
		return fmt.Sprintf("%s %s (%s)", page.Plain(strings.TrimPrefix(s.Title(), "after ")), cell, verdict)
	}
	var out, previous []string
	warning := results.WarnBelowRandom(table)
	for _, s := range slices.Backward(table) {
		if results.Trained(s.Policy) && s.OverRandom != nil && warning == "" {
			out = append(out, "Over random: "+gain(s, s.OverRandom)+".")
			break
		}
	}
	for _, s := range table {
		if s.OverPrevious != nil {
			previous = append(previous, gain(s, s.OverPrevious))
		}
	}
	if len(previous) > 0 {
		out = append(out, "Over the phase before: "+strings.Join(previous, ", ")+".")
	}
	if warning != "" {
		out = append(out, warning)
	}
	return out
}

// baselineStory explains the baselines that have no policy behind them.
func baselineStory(stages []record.StageResult) string {
	var out string
	for _, b := range []struct{ policy, is string }{
		{record.PolicyMajority, "the most frequent training answer, given to every question"},
		{record.PolicyReference, "the target answer itself"},
	} {
		if slices.ContainsFunc(stages, func(r record.StageResult) bool { return r.Policy == b.policy }) {
			out += fmt.Sprintf(" %s is %s.", page.Capital(b.policy), b.is)
		}
	}
	if slices.ContainsFunc(stages, func(r record.StageResult) bool { return r.Policy == record.PolicyRecorded }) {
		out += " No reader can score new selections of this data, so policies are judged by how they order the recorded candidates: the " +
			"recorded reward that they expect among them" +
			" (a baseline takes its first), how often the likeliest is the best, and the share of pairs in the right order. Similarity takes " +
			"the candidate whose examples are nearest to the query," +
			" recorded order the first of the file, random any; oracle is the best of them, the ceiling."
		if results.ListsBestFirst(stages) {
			out += " The file lists the best candidate first: its order is an oracle, which no policy can pass."
		}
	}
	return out
}

// resultTable are the results on one split by one metric, or by two that agree in every number.
type resultTable struct {
	metric string // reward, accuracy, or "reward and accuracy"
	rows   []record.StageResult
	yards  []results.Yardstick // with columns of their own
	oracle string              // a baseline that is none: the recorded order, where it lists the best first
}

// resultTables are all of them, that of the verdict first.
func resultTables(stages []record.StageResult) []resultTable {
	var tables []resultTable
	oracle := ""
	if results.ListsBestFirst(stages) {
		oracle = record.PolicyRecorded
	}
	for from := 0; from < len(stages); {
		to := from
		for to < len(stages) && results.SameTable(stages[from], stages[to]) {
			to++
		}
		t := resultTable{stages[from].Metric, stages[from:to], nil, oracle}
		t.yards = shownYardsticks(t.rows, stages)
		if n := len(tables); n > 0 && sameNumbers(tables[n-1].rows, t.rows) {
			tables[n-1].metric += " and " + t.metric
		} else {
			tables = append(tables, t)
		}
		from = to
	}
	if planned := PlannedResult(stages); planned != nil {
		if i := slices.IndexFunc(tables, func(t resultTable) bool { return results.SameTable(t.rows[0], *planned) }); i > 0 {
			first := tables[i]
			copy(tables[1:], tables[:i])
			tables[0] = first
		}
	}
	return tables
}

// sameNumbers says whether two tables of a split differ in nothing but their metric: where the reward is the accuracy.
func sameNumbers(a, b []record.StageResult) bool {
	return slices.EqualFunc(a, b, func(x, y record.StageResult) bool {
		y.Metric = x.Metric
		return reflect.DeepEqual(x, y)
	})
}

// shownYardsticks are those of a table, each with columns of its own. A selector may start as similarity: then the
// gains over both are the same numbers, and stand once.
func shownYardsticks(table, stages []record.StageResult) []results.Yardstick {
	yards := results.YardsticksOf(table, stages)
	if n := len(yards); n > 1 && yards[n-1].Policy == record.PolicyInit && sameAsInit(table, yards[0]) {
		yards[0].Short += " = " + yards[n-1].Short
		yards = yards[:n-1]
	}
	return yards
}

// cells are those of a table, two for each of its yardsticks.
func (t resultTable) cells() [][]string {
	var rows [][]string
	for _, s := range t.rows {
		row := []string{page.Plain(s.Title()), page.MeanSE(s.Mean, s.SE)}
		if s.Policy == t.oracle {
			row[0] += " (best first)"
		}
		for _, y := range t.yards {
			gain, _, _, verdict := (*y.Gain(&s)).Cells()
			row = append(row, gain, verdict)
		}
		rows = append(rows, row)
	}
	return rows
}

// PrintResults writes the result table of a finished run for the console: every stage on every split,
// with its gains on the same questions. A width above 0 is that of a terminal, beyond which nothing is written.
func PrintResults(w io.Writer, stages []record.StageResult, width int) error {
	for i, t := range resultTables(stages) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s on %s, %s\n", results.MetricName(t.metric), t.rows[0].Split, page.Plural(t.rows[0].Queries, "query"))
		header := []string{"policy", ">mean ± SE"}
		for _, y := range t.yards {
			header = append(header, ">over "+strings.TrimSuffix(y.Short, " policy")+" [95%]", "")
		}
		if err := page.NewTable(header, t.cells()).ConsoleWithin(w, width); err != nil {
			return err
		}
		for _, note := range t.notes() {
			if _, err := fmt.Fprintln(w, stdout.Fold(page.PlainText(page.Markup(note)), width, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}
