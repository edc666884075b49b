package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// codeLines returns the lines of Go code without comments, blank lines and runs of spaces.
func codeLines(text string) []string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "// ")
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "//") {
			lines = append(lines, line)
		}
	}
	return lines
}

// follows reports whether lines stand in text in this order, others between them.
func follows(text, lines []string) bool {
	for _, line := range text {
		if len(lines) > 0 && line == lines[0] {
			lines = lines[1:]
		}
	}
	return len(lines) == 0
}

// TestExtendingIsCompiled: every Go block of docs/extending.md is taken from one Go file of the repository, which the
// compiler sees: entries from a toy of a test, interfaces from where they stand.
func TestExtendingIsCompiled(t *testing.T) {
	root := golden.RepoRoot()
	text, err := os.ReadFile(filepath.Join(root, "docs", "extending.md"))
	if err != nil {
		t.Fatal(err)
	}
	var sources [][]string
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{"testdata", "build", ".git"}, entry.Name()) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		code, err := os.ReadFile(path)
		sources = append(sources, codeLines(string(code)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for rest := string(text); ; {
		_, after, found := strings.Cut(rest, "\n```go\n")
		if !found {
			break
		}
		block, end, _ := strings.Cut(after, "\n```")
		rest = end
		blocks++
		if lines := codeLines(block); !slices.ContainsFunc(sources, func(s []string) bool { return follows(s, lines) }) {
			t.Errorf("no Go file holds these lines in this order:\n%s", block)
		}
	}
	if blocks < 8 {
		t.Errorf("%d blocks of Go, want at least 8", blocks)
	}
}
