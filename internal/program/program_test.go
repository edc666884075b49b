package program

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A shell reads the words of a command as they were given, and Cut finds the command in a message, whatever they are.
func TestCommand(t *testing.T) {
	words := []string{"resume", "/a b/it's", `\`, "`x`", "$HOME", "a=[1,2]", "", "é|&;<>()*?~#!", "a\tb", "''`'"}
	before, command, after, found := Cut("in `a.db`: don't. Go on: " + Command(words...) + ", or " + Command("ls"))
	if !found || before != "in `a.db`: don't. Go on: " || after != ", or `run ls`" {
		t.Fatalf("%q, %q, %q, %v", before, command, after, found)
	}
	out, err := exec.Command("sh", "-c", `run() { printf '%s\n' "$@"; }; `+command).Output()
	if got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"); err != nil || !slices.Equal(got, words) {
		t.Errorf("%s is read as %q, %v, want %q", command, got, err, words)
	}
	for _, text := range []string{"", "`", "a `b", "a ``, `b` c", "`run x'"} {
		if before, _, _, found := Cut(text); found || before != text {
			t.Errorf("Cut(%q) finds a command", text)
		}
	}
}
