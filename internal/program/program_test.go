package program

import (
	"os"
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

// A command that is written into a report can be pasted, as long as the program is there.
func TestCalled(t *testing.T) {
	before := os.Args
	t.Cleanup(func() { os.Args = before })
	for called, want := range map[string]string{"bin/run": "bin/run", "/opt/my tools/run": "/opt/my tools/run", "": "run",
		"/tmp/x.test": "run", "/data/multirun/a/.sweep/program/run": "run"} {
		if os.Args = []string{called}; Called() != want {
			t.Errorf("called as %q: %q, want %q", called, Called(), want)
		}
	}
}
