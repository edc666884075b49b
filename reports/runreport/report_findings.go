package runreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

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
	table := page.LinesOf(causesOf(sorted))
	table.Column("severity", func(c cause) string { return page.Plain(c.Severity) })
	table.Column("where", func(c cause) string { return c.Where() })
	table.Column("finding", func(c cause) string { return page.Plain(run.InItsWords(c.text())) })
	if slices.ContainsFunc(sorted, func(f record.Finding) bool { return f.Key != "" }) {
		table.Column("key to change", func(c cause) string {
			if c.Key == "" {
				return ""
			}
			return page.TableCode([]string{cmp.Or(c.Set, c.Key)})
		})
	}
	d.Paragraph("%s.", page.Capital(findingCounts(s.Findings)))
	d.Table(table.Header, table.Rows)
}

// cause is a finding with the others of its phase that the same value to type would mend.
type cause struct {
	record.Finding
	also []record.Finding
}

// causesOf makes one of the findings with one cause: the first of them, the gravest, stands for them.
func causesOf(sorted []record.Finding) []cause {
	var out []cause
	for _, f := range sorted {
		same := func(c cause) bool { return f.Set != "" && c.Set == f.Set && c.Phase == f.Phase }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].also = append(out[i].also, f)
		} else {
			out = append(out, cause{f, nil})
		}
	}
	return out
}

// text is the finding, and what the others of its cause have seen: their messages up to the colon.
func (c cause) text() string {
	if len(c.also) == 0 {
		return c.Message
	}
	return c.Message + ". Of the same cause: " + strings.Join(list.Map(c.also, func(f record.Finding) string {
		what, _, _ := strings.Cut(f.Message, ": ")
		return what + " (epoch " + fmt.Sprint(f.Epoch) + ")"
	}), "; ")
}

func gravestFirst(findings []record.Finding) []record.Finding {
	rank := func(f record.Finding) int { return slices.Index(severities(), f.Severity) }
	return slices.SortedStableFunc(slices.Values(findings), func(a, b record.Finding) int { return cmp.Compare(rank(a), rank(b)) })
}

func severities() []string { return []string{"stop", "warning", "note"} }

// findingCounts is: 1 stop, 2 warnings and 3 notes; "" for none.
func findingCounts(findings []record.Finding) string {
	var parts []string
	for _, severity := range severities() {
		if n := list.Count(findings, func(f record.Finding) bool { return f.Severity == severity }); n > 0 {
			parts = append(parts, page.Plural(n, severity))
		}
	}
	return page.Joined(parts)
}
