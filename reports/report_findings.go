package reports

import (
	"cmp"
	"slices"
	"strings"
)

// isFinding says whether a row's event is one of the run's findings.
func isFinding(s *Summary, e Row) bool {
	return slices.ContainsFunc(s.Findings, func(f Finding) bool {
		return f.Check == e.Text("event") && f.Message == e.Text("message") && f.Phase == e.Phase && f.Epoch == e.Epoch && f.Step == e.Step
	})
}

// reportFindings lists what the preflight and the doctor have found, the gravest first. A run that neither has
// watched has no such section.
func reportFindings(d *document, run *Run, s *Summary) {
	if s.Findings == nil || s.Task != "train" {
		return
	}
	d.heading(2, "Findings")
	if len(s.Findings) == 0 {
		d.paragraph("The preflight and the doctor found nothing.")
		return
	}
	sorted := slices.Clone(s.Findings)
	slices.SortStableFunc(sorted, func(a, b Finding) int { return cmp.Compare(severityRank(a.Severity), severityRank(b.Severity)) })
	keys := slices.ContainsFunc(sorted, func(f Finding) bool { return f.Key != "" })
	header := []string{"severity", "where", "finding"}
	if keys {
		header = append(header, "key to change")
	}
	var rows [][]string
	for _, f := range sorted {
		row := []string{plain(f.Severity), f.where(), plain(run.inItsWords(f.Message))}
		if keys {
			key := ""
			if f.Key != "" {
				key = tableCode([]string{f.Key})
			}
			row = append(row, key)
		}
		rows = append(rows, row)
	}
	d.paragraph("%s.", capital(findingCounts(s.Findings)))
	d.table(header, rows)
}

func severityRank(severity string) int {
	return slices.Index([]string{"note", "warning", "stop"}, severity) * -1
}

// findingCounts is: 1 stop, 2 warnings and 3 notes; "" for none.
func findingCounts(findings []Finding) string {
	var parts []string
	for _, severity := range []string{"stop", "warning", "note"} {
		n := 0
		for _, f := range findings {
			if f.Severity == severity {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, plural(n, severity))
		}
	}
	if len(parts) > 1 {
		return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
	}
	return strings.Join(parts, "")
}
