package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/build"
	"fulcrum/internal/testkit/golden"
)

// CHANGELOG.md says what a user of the newest release needs: it has a section for this program's version and stays short.
func TestChangelogIsShort(t *testing.T) {
	const most = 150
	text, err := os.ReadFile(filepath.Join(golden.RepoRoot(), "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > most {
		t.Errorf("CHANGELOG.md has %d lines, at most %d: join entries by subject, measurements belong to docs/log", lines, most)
	}
	for _, heading := range []string{"\n## [Unreleased]\n", "\n## [" + build.Version + "] - "} {
		if strings.Count(string(text), heading) != 1 {
			t.Errorf("CHANGELOG.md: want one heading %q", strings.TrimSpace(heading))
		}
	}
}
