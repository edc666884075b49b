package arrows

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every module that our code imports has its reason in docs/architecture.md, and no other module has one. What
// `go mod tidy` marks as indirect needs none.
func TestEveryDependencyHasItsReason(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	find := func(pattern, text string) []string {
		var out []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return out
	}
	direct := find(`(?m)^(?:require)?\s+(\S+\.\S+) v\S+$`, read("../../go.mod"))
	_, page, found := strings.Cut(read("../../docs/architecture.md"), "\n## Dependencies\n")
	page, _, _ = strings.Cut(page, "\n## ")
	rows := find("(?m)^\\| `(\\S+)` \\| \\S", page)
	if !found || len(direct) < 10 || !slices.Equal(direct, rows) {
		t.Errorf("direct requirements of go.mod:\n%s\nrows under Dependencies in docs/architecture.md:\n%s", strings.Join(direct, "\n"),
			strings.Join(rows, "\n"))
	}
}
