package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// PrintResults writes the result table of a finished run for the console: every stage on every split,
// with its gains on the same questions.
func PrintResults(w io.Writer, stages []StageResult) error {
	for from := 0; from < len(stages); {
		to := from
		for to < len(stages) && sameTable(stages[from], stages[to]) {
			to++
		}
		if from > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s on %s, %s\n", stages[from].Metric, stages[from].Split, plural(stages[from].Queries, "query"))
		if err := printTable(w, stages[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func printTable(w io.Writer, stages []StageResult) error {
	lines := tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On, ShowFooterLine: tw.Off}
	var buf strings.Builder
	table := tablewriter.NewTable(&buf,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.Border{Left: tw.Off, Right: tw.Off, Top: tw.Off, Bottom: tw.Off},
			Symbols:  tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{Lines: lines, Separators: tw.Separators{BetweenRows: tw.Off, BetweenColumns: tw.Off}},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: columnAlignment()}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: columnAlignment()}),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
	)
	table.Header([]string{"policy", "mean ± SE", "over similarity [95%]", "", "over initial [95%]", ""})
	for _, s := range stages {
		row := []string{s.title(), fmt.Sprintf("%.4f ± %.4f", s.Mean, s.SE)}
		for _, p := range []*Paired{s.OverSimilarity, s.OverInit} {
			gain, verdict := gainCells(p)
			row = append(row, gain, verdict)
		}
		if err := table.Append(row); err != nil {
			return err
		}
	}
	if err := table.Render(); err != nil {
		return err
	}
	for line := range strings.Lines(buf.String()) { // the last column is padded too
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func columnAlignment() []tw.Align {
	return []tw.Align{tw.AlignLeft, tw.AlignRight, tw.AlignRight, tw.AlignLeft, tw.AlignRight, tw.AlignLeft}
}
