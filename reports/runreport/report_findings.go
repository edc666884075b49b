package runreport

import (
	"cmp"
	"slices"
	"strings"

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
	sorted := slices.Clone(s.Findings)
	slices.SortStableFunc(sorted, func(a, b record.Finding) int { return cmp.Compare(severityRank(a.Severity), severityRank(b.Severity)) })
	keys := slices.ContainsFunc(sorted, func(f record.Finding) bool { return f.Key != "" })
	header := []string{"severity", "where", "finding"}
	if keys {
		header = append(header, "key to change")
	}
	var rows [][]string
	for _, f := range sorted {
		row := []string{page.Plain(f.Severity), f.Where(), page.Plain(run.InItsWords(f.Message))}
		if keys {
			key := ""
			if f.Key != "" {
				key = page.TableCode([]string{f.Key})
			}
			row = append(row, key)
		}
		rows = append(rows, row)
	}
	d.Paragraph("%s.", page.Capital(findingCounts(s.Findings)))
	d.Table(header, rows)
}

func severityRank(severity string) int {
	return slices.Index([]string{"note", "warning", "stop"}, severity) * -1
}

// findingCounts is: 1 stop, 2 warnings and 3 notes; "" for none.
func findingCounts(findings []record.Finding) string {
	var parts []string
	for _, severity := range []string{"stop", "warning", "note"} {
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
	if len(parts) > 1 {
		return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
	}
	return strings.Join(parts, "")
}
