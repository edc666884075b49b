package arrows

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What the program may hold, lines as `wc -l` counts them. The numbers may only fall, unless docs/log says why. The goals are 80,000,
// 112,000 and 420 keys.
const (
	mostCoreLines = 98_592
	mostLines     = 131_711
	mostKeys      = 420
)

// annexes returns the list of what may be left out of the program: folders and patterns of files.
func annexes(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("annexes.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

// isAnnex reports whether a file, or the files of a folder, are an annex.
func isAnnex(list []string, file string) bool {
	return slices.ContainsFunc(list, func(a string) bool {
		match, err := path.Match(a, file)
		return err == nil && match || file == a || strings.HasPrefix(file, a+"/")
	})
}

// TestCoreBuildsNoAnnex: the program without its annexes is made of core files alone.
func TestCoreBuildsNoAnnex(t *testing.T) {
	const files = `{{range .GoFiles}}{{$.ImportPath}}/{{.}}{{"\n"}}{{end}}{{range .CgoFiles}}{{$.ImportPath}}/{{.}}{{"\n"}}{{end}}`
	built, err := exec.Command("go", "list", "-tags", "core", "-deps", "-f", files, module+"/cmd/run").Output()
	if err != nil {
		t.Fatal(err)
	}
	list, ours := annexes(t), 0
	for line := range strings.Lines(string(built)) {
		file, inside := strings.CutPrefix(strings.TrimSpace(line), module+"/")
		if !inside {
			continue
		}
		if ours++; isAnnex(list, file) {
			t.Errorf("%s is an annex (annexes.txt) and built into the core: register it in cmd/run/annexes.go, or list it no more", file)
		}
	}
	if ours < 400 {
		t.Errorf("the core has %d files", ours)
	}
}

// TestCoreImportsNoAnnex: the core builds without what may be left out.
func TestCoreImportsNoAnnex(t *testing.T) {
	list, used := annexes(t), map[string]bool{}
	for _, s := range sources(t) {
		for _, a := range list {
			used[a] = used[a] || isAnnex([]string{a}, s.file)
		}
		if s.test || isAnnex(list, s.file) {
			continue
		}
		for _, spec := range s.ast.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			folder, ours := strings.CutPrefix(name, module+"/")
			if ours && isAnnex(list, folder) {
				t.Errorf("%s: core imports the annex %s (internal/arrows/annexes.txt): register it in cmd/run/annexes.go", s.at(spec.Pos()), folder)
			}
		}
	}
	for _, a := range list {
		if !used[a] {
			t.Errorf("annexes.txt names %s, which holds no Go file", a)
		}
	}
}

// TestBudget: lines of the core, lines in all and documented keys may only fall.
func TestBudget(t *testing.T) {
	list, core, all := annexes(t), 0, 0
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", s.file))
		if err != nil {
			t.Fatal(err)
		}
		n := strings.Count(string(text), "\n")
		if all += n; !isAnnex(list, s.file) {
			core += n
		}
	}
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := len(regexp.MustCompile("(?m)^`[a-z0-9_.]+` \\| ").FindAll(page, -1))
	for _, b := range []struct {
		what    string
		got, at int
	}{{"lines of core", core, mostCoreLines}, {"lines in all", all, mostLines}, {"documented keys", keys, mostKeys}} {
		if b.got > b.at {
			t.Errorf("%d %s, want at most %d: they may only fall (or docs/log says why)", b.got, b.what, b.at)
		}
	}
	t.Logf("%d lines of core, %d in all, %d documented keys", core, all, keys)
}
