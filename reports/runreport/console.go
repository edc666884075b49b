package runreport

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// The end of a run fits into a small terminal, whatever it was called with.
const (
	endLines = 15
	endWidth = 80
	// longestName leaves room for a score, a gain with its interval and a verdict
	longestName = 25
)

// PrintEnd writes what a finished run came to: a table of the first metric, what the last phase added, the other measures and the
// verdict of the report. With the lines of next, which come last, it has at most endLines lines of endWidth columns; commands stay whole.
func PrintEnd(w io.Writer, run *record.Run, next []string) error {
	stages, s := run.Summary.Evaluations, run.Summary
	stage := PlannedResult(stages)
	if stage == nil {
		_, err := fmt.Fprintln(w, strings.Join(next, "\n"))
		return err
	}
	table := results.TableOf(stages, *stage)
	var below []string
	add := func(text string) {
		if text != "" {
			below = append(below, strings.Split(stdout.Fold(page.PlainText(page.Markup(text)), endWidth, 2), "\n")...)
		}
	}
	add(lastPhaseGain(table))
	add(page.Plain(rewardLine(run, stage)))
	add(otherMeasures(stage, stages))
	measures := len(below)
	answer, entries := verdictOf(run, s, stages)
	if better := results.BetterThanInit(stages); better != "" {
		answer += " But " + better + "."
	}
	if len(entries) > 0 && strings.HasPrefix(entries[0], "**Read the findings first") {
		first, _, _ := strings.Cut(strings.Trim(entries[0], "*"), "**")
		answer += " " + first + "."
	}
	add(answer + belowStart(run, stage))
	const head, rows = 3, 2 // title, names of columns, rule; the start and the best
	below = append(below, next...)
	if over := len(below) + head + rows - endLines; over > 0 { // many measures: the verdict stays whole
		below = slices.Delete(below, max(measures-over, 0), measures)
	}
	split := stage.Split
	if record.HeldOut(split) {
		split += ", held out"
	}
	var shown strings.Builder
	if err := printEndTable(&shown, table, stages, endLines-head-len(below)); err != nil {
		return err
	}
	title := fmt.Sprintf("%s on %s, %s", results.MetricName(stage.Metric), split,
		page.Plural(stage.Queries, run.InItsWords("question"))+s.Data.Scorer.With())
	if strings.Contains(shown.String()+strings.Join(below, ""), stats.Dagger) {
		title += " (" + stats.Dagger + " rough: the report says why)"
	}
	_, err := fmt.Fprintf(w, "%s\n%s%s\n", title, shown.String(), strings.Join(below, "\n"))
	return err
}

// belowStart says why the best checkpoint scores below what training began with on these questions; "" where it does not.
func belowStart(run *record.Run, stage *record.StageResult) string {
	best := run.Summary.Best
	switch {
	case best == nil || stage.Policy != record.PolicyBest || stage.OverInit == nil || stage.OverInit.Mean >= 0:
		return ""
	case record.HeldOut(stage.Split):
		return fmt.Sprintf(" It was chosen by %s (%s); these questions say otherwise.", page.Plain(best.Metric), page.Sig(float64(best.Value), 4))
	case best.Choice == "":
		return ""
	}
	return " " + page.Plain(page.Capital(best.Choice)) + "."
}

// printEndTable writes so many rows of a table with their gains over the initial policy, else over the first yardstick: those of what
// training led to first.
func printEndTable(w io.Writer, table, stages []record.StageResult, most int) error {
	yards := results.YardsticksOf(table, stages)
	if len(yards) == 0 {
		yards = results.Yardsticks()
	}
	start := yards[0]
	if i := slices.IndexFunc(yards, func(y results.Yardstick) bool { return y.Policy == record.PolicyInit }); i >= 0 {
		start = yards[i]
	}
	kept := results.WithoutTwins(table)
	for _, least := range []func(r record.StageResult) bool{
		func(r record.StageResult) bool {
			return r.Policy == record.PolicyBestBeam || r.Policy == record.PolicyRecorded
		},
		func(r record.StageResult) bool { return r.Policy == record.PolicyRandom },
		func(r record.StageResult) bool {
			return r.Policy == record.PolicyOracle || r.Policy == record.PolicyReference
		},
		func(r record.StageResult) bool { return results.Trained(r.Policy) && r.Policy != record.PolicyBest },
		func(r record.StageResult) bool { return !results.Trained(r.Policy) && r.Policy != start.Policy },
	} {
		for len(kept) > max(most, 1) {
			i := slices.IndexFunc(kept, least)
			if i < 0 {
				break
			}
			kept = slices.Delete(kept, i, i+1)
		}
	}
	short := strings.NewReplacer("after ", "", "best (", "best: ", " (epoch", " epoch", ")", "")
	var rows [][]string
	for _, r := range kept {
		gain, _, _, verdict := (*start.Gain(&r)).Cells()
		rows = append(rows, []string{page.Plain(page.Clip(short.Replace(r.Title()), longestName)), page.Score(r.Mean, r.SE), gain,
			strings.Replace(verdict, " "+stats.Dagger, stats.Dagger, 1)})
	}
	over := "start"
	if start.Policy != record.PolicyInit {
		over = start.Short
	}
	return page.NewTable([]string{"policy", ">score", ">gain over the " + over + " [95%]", "verdict"}, rows).ConsoleWithin(w, endWidth)
}

// lastPhaseGain is what the last phase of a table added, in a line; "" where no phase follows another.
func lastPhaseGain(table []record.StageResult) string {
	i := lastAdded(table)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%s added %s to %s.", page.Plain(table[i].Policy), gainInWords(table[i].OverPrevious), page.Plain(table[i-1].Policy))
}

// otherMeasures are the gains of a line by the other metrics of its split, over what its own table compares with.
func otherMeasures(stage *record.StageResult, stages []record.StageResult) string {
	var parts []string
	for _, r := range stages {
		if r.Policy != stage.Policy || r.Split != stage.Split || r.Metric == stage.Metric || r.Shots != stage.Shots {
			continue
		}
		text := results.MetricName(r.Metric) + " " + page.Score(r.Mean, r.SE)
		if r.OverInit != nil {
			text += ", " + gainInWords(r.OverInit)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return page.Capital(strings.Join(parts, "; ")) + "."
}

// gainInWords is +0.0248 [+0.0075, +0.0420] (better).
func gainInWords(p *stats.Paired) string {
	gain, _, _, verdict := p.Cells()
	return gain + " (" + verdict + ")"
}
