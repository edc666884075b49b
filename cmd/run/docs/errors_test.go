package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// TestErrorsAreTheProgramsOwn: the page has thirty messages, each found by its text. The texts stand in what the program
// says to the mistakes of cmd/run/testdata, which other tests compare with the program.
func TestErrorsAreTheProgramsOwn(t *testing.T) {
	var said []byte
	for _, name := range []string{"mistakes.txt", "mistakes_typed.txt"} {
		text, err := os.ReadFile(filepath.Join(golden.RepoRoot(), "cmd", "run", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, text...)
	}
	page, err := os.ReadFile(docsPath("errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	messages := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 || !strings.HasPrefix(line, "| `") {
			continue
		}
		if messages[cells[0]] {
			t.Errorf("twice: %s", cells[0])
		}
		messages[cells[0]] = true
		for _, part := range codeSpan.FindAllStringSubmatch(cells[0], -1) {
			if !strings.Contains(string(said), part[1]) {
				t.Errorf("the program does not say %q", part[1])
			}
		}
	}
	if len(messages) != 30 {
		t.Errorf("%d messages, want 30", len(messages))
	}
}
