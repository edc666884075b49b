package runreport

import (
	"fmt"
	"io"
	"strings"

	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

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
