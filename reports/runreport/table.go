package runreport

import (
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// PrintResults writes the result table of a finished run for the console: every stage on every split,
// with its gains on the same questions.
func PrintResults(w io.Writer, stages []record.StageResult) error {
	for i, t := range resultTables(stages) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s on %s, %s\n", results.MetricName(t.metric), t.rows[0].Split, page.Plural(t.rows[0].Queries, "query"))
		if err := printTable(w, t.rows); err != nil {
			return err
		}
		for _, note := range tableNotes(t.rows) {
			if _, err := fmt.Fprintln(w, note); err != nil {
				return err
			}
		}
	}
	return nil
}

func printTable(w io.Writer, stages []record.StageResult) error {
	lines := tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On, ShowFooterLine: tw.Off}
	header := []string{"policy", "mean ± SE"}
	align := tw.CellAlignment{PerColumn: []tw.Align{tw.AlignLeft, tw.AlignRight}}
	yards := shownYardsticks(stages)
	for _, y := range yards {
		header = append(header, "over "+strings.TrimSuffix(y.Short, " policy")+" [95%]", "")
		align.PerColumn = append(align.PerColumn, tw.AlignRight, tw.AlignLeft)
	}
	var buf strings.Builder
	table := tablewriter.NewTable(&buf,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.Border{Left: tw.Off, Right: tw.Off, Top: tw.Off, Bottom: tw.Off},
			Symbols:  tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{Lines: lines, Separators: tw.Separators{BetweenRows: tw.Off, BetweenColumns: tw.Off}},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignmentConfig(align),
		tablewriter.WithRowAlignmentConfig(align),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
	)
	table.Header(header)
	for _, row := range stageRows(stages, yards, func(title string) string { return title }) {
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
