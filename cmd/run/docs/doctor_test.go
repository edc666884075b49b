package docs

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulcrum/phases/doctor"
	"fulcrum/phases/preflight"
)

// The tables of docs/doctor.md and docs/preflight.md have a row for each check, with its severity and its threshold, and no others.
func TestPagesOfChecksAreCurrent(t *testing.T) {
	for page, checks := range map[string][]doctor.Check{"doctor.md": doctor.Checks(), "preflight.md": preflight.Checks()} {
		text, err := os.ReadFile(docsPath(page))
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string][]string{}
		for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
			if rows[m[1]] != nil {
				t.Errorf("%s has two rows for %s", page, m[1])
			}
			rows[m[1]] = strings.Split(m[2], " | ")
		}
		if row := rows["nonfinite"]; page == "doctor.md" && (row == nil || row[0] != "stop, always") {
			t.Errorf("%s: nonfinite: %v", page, row) // it has no entry: nothing turns it off
		}
		delete(rows, "nonfinite")
		for _, c := range checks {
			row, want := rows[c.Name], ""
			switch {
			case c.Steps > 0 && c.Limit == 0:
				want = fmt.Sprintf("%d steps in a row", c.Steps)
			case c.Steps > 0:
				want = fmt.Sprintf("%v over %d steps", c.Limit, c.Steps)
			}
			if len(row) < 3 || row[0] != string(c.Severity) || want != "" && row[1] != want {
				t.Errorf("%s: %s: %.2q, want %q and %q", page, c.Name, row, c.Severity, want)
				continue
			}
			if number, _, _ := strings.Cut(strings.TrimSpace(row[1]), " "); want == "" {
				if x, err := strconv.ParseFloat(number, 64); (number != "" || c.Limit != 0) && (err != nil || x != c.Limit) {
					t.Errorf("%s: %s has the threshold %q, want %v", page, c.Name, row[1], c.Limit)
				}
			}
			delete(rows, c.Name)
		}
		for name := range rows {
			t.Errorf("%s has a row for %s, which is no check", page, name)
		}
	}
}
