package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/configs"
	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/record"
)

var linkText = regexp.MustCompile(`\[([^]]+)\]\([^)\s]+\)`)

// cmd/run/help_index.txt, which `run help WORD` searches, has options of groups, metrics, and the findings, errors and headings of
// docs/*.md.
func TestHelpIndexIsCurrent(t *testing.T) {
	var index, findings, errors, headings bytes.Buffer
	options, groups := groupOptions(t)
	for _, group := range groups {
		for _, option := range options[group] {
			text, err := fs.ReadFile(configs.Library(), group+"/"+option+".yaml")
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# @package _global_\n"), "\n")
			fmt.Fprintf(&index, "Options of groups: `run GROUP=OPTION --cfg job`\t%s=%s\t%s\n", group, option, strings.TrimPrefix(first, "# "))
		}
	}
	for _, m := range record.Metrics() {
		fmt.Fprintf(&index, "Metrics: docs/metrics.md\t%s\t%s\n", m.Name, m.Help)
	}
	for _, p := range readPages(t, "docs/*.md") {
		kind := map[string]string{"doctor.md": "Findings in training: docs/doctor.md#checks",
			"preflight.md": "Findings before training: docs/preflight.md", "errors.md": "Errors: docs/errors.md"}[path.Base(p.name)]
		title, code := "", false
		own := p.name == "docs/configuration.md" || p.name == "docs/commands.md" // the program knows what they say
		for line := range strings.Lines(p.text) {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			cells := strings.Split(strings.Trim(linkText.ReplaceAllString(line, "$1"), "| \n"), " | ")
			switch heading := strings.Trim(line, "# \n"); {
			case code:
			case strings.HasPrefix(line, "#") && title == "":
				title = heading
				fmt.Fprintf(&headings, "Pages\t%s\t%s\n", p.name, title)
			case strings.HasPrefix(line, "#") && !own:
				fmt.Fprintf(&headings, "Pages\t%s#%s\t%s (%s)\n", p.name, anchors(line)[0], heading, title)
			case kind == "" || !strings.HasPrefix(line, "| `") || len(cells) < 3:
			case p.name == "docs/errors.md":
				fmt.Fprintf(&errors, "%s\t%s\t%s\n", kind, cells[0], cells[len(cells)-1])
			default:
				means := cells[len(cells)-1] // what it holds
				if len(cells) > 4 {
					means = cells[len(cells)-2] // what a finding means
				}
				fmt.Fprintf(&findings, "%s\t%s\t%s\n", kind, strings.Trim(cells[0], "`"), means)
			}
		}
	}
	if findings.Len() < 1000 || errors.Len() < 1000 || headings.Len() < 1000 {
		t.Errorf("%d, %d and %d bytes of findings, errors and headings, want a thousand of each", findings.Len(), errors.Len(), headings.Len())
	}
	golden.File(t, filepath.Join(golden.RepoRoot(), "cmd", "run", "help_index.txt"),
		slices.Concat(index.Bytes(), findings.Bytes(), errors.Bytes(), headings.Bytes()))
}
