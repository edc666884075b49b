package sweepreport

import (
	"fmt"
	"path/filepath"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Warned says which jobs' summaries warn of what: "2 of 3 jobs have warnings: #0 kl_high; #2 kl_high and best is the initial policy". ""
// where none does. It reads the summaries.
func Warned(jobs []Job) string {
	const named = 20
	var parts []string
	for _, j := range jobs {
		var s struct { // a thousand summaries have 40 MB: no more than these
			Warnings []string         `json:"warnings"`
			Findings []record.Finding `json:"findings"`
		}
		if j.Dir == "" || record.ReadJSON(filepath.Join(j.Dir, record.SummaryFile), &s) != nil { // it has none yet, or the report says so
			continue
		}
		if names := record.Warned(s.Warnings, s.Findings); names != nil {
			parts = append(parts, fmt.Sprintf("#%d %s", j.Number, page.Joined(list.Map(names, page.InlineCode))))
		}
	}
	n := len(parts)
	if n == 0 {
		return ""
	}
	if n > named {
		parts = append(parts[:named], fmt.Sprintf("and %d more", n-named))
	}
	return fmt.Sprintf("%d of %s %s warnings: %s", n, page.Plural(len(jobs), "job"), page.Verb(n, "has", "have"), strings.Join(parts, "; "))
}
