package runreport

import (
	"cmp"
	"slices"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// isFinding says whether a row's event is one of the run's findings.
func isFinding(s *record.Summary, e record.Row) bool {
	return slices.ContainsFunc(s.Findings, func(f record.Finding) bool {
		return f.Check == e.Text("event") && f.Message == e.Text("message") && f.Phase == e.Phase && f.Epoch == e.Epoch && f.Step == e.Step
	})
}

// reportFindings lists what the preflight and the doctor have found, the gravest first. A run that neither has
// watched has no such section.
func reportFindings(d *page.Document, run *record.Run, s *record.Summary) {
	if s.Findings == nil || s.Task != "train" {
		return
	}
	d.Heading(2, "Findings")
	if len(s.Findings) == 0 {
		d.Paragraph("The preflight and the doctor found nothing.")
		return
	}
	sorted := gravestFirst(s.Findings)
	table := page.LinesOf(sorted)
	table.Column("severity", func(f record.Finding) string { return page.Plain(f.Severity) })
	table.Column("where", record.Finding.Where)
	table.Column("finding", func(f record.Finding) string { return page.Plain(run.InItsWords(f.Message)) })
	if slices.ContainsFunc(sorted, func(f record.Finding) bool { return f.Key != "" }) {
		table.Column("key to change", func(f record.Finding) string {
			if f.Key == "" {
				return ""
			}
			return page.TableCode([]string{f.Key})
		})
	}
	d.Paragraph("%s.", page.Capital(findingCounts(s.Findings)))
	d.Table(table.Header, table.Rows)
}

// gravestFirst are findings in the order of their severity.
func gravestFirst(findings []record.Finding) []record.Finding {
	rank := func(f record.Finding) int { return slices.Index(severities(), f.Severity) }
	return slices.SortedStableFunc(slices.Values(findings), func(a, b record.Finding) int { return cmp.Compare(rank(a), rank(b)) })
}

func severities() []string { return []string{"stop", "warning", "note"} }

// findingCounts is: 1 stop, 2 warnings and 3 notes; "" for none.
func findingCounts(findings []record.Finding) string {
	var parts []string
	for _, severity := range severities() {
		n := 0
		for _, f := range findings {
			if f.Severity == severity {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, page.Plural(n, severity))
		}
	}
	return page.Joined(parts)
}
