package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// tree lists the repository's files and folders, relative, without what .gitignore names.
func tree(t *testing.T) (files, folders map[string]bool) {
	t.Helper()
	root := golden.RepoRoot()
	ignore, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	ignored := []string{".git"}
	for _, line := range strings.Fields(string(ignore)) {
		ignored = append(ignored, strings.Trim(line, "/"))
	}
	files, folders = map[string]bool{}, map[string]bool{}
	err = filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil || relative == "." {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			if slices.Contains(ignored, relative) {
				return filepath.SkipDir
			}
			folders[relative] = true
			return nil
		}
		files[relative] = true
		return nil
	})
	if err != nil || !files["go.mod"] {
		t.Fatalf("%d files below the repository's root (%v)", len(files), err)
	}
	return files, folders
}

func TestLinksLeadSomewhere(t *testing.T) {
	files, folders := tree(t)
	checked := 0
	all := append(pages(t), readPages(t, "docs/*/*.md")...) // the log and the studies too
	for _, p := range all {
		for _, l := range p.links {
			if strings.Contains(l.text, "://") {
				continue
			}
			checked++
			target, anchor, _ := strings.Cut(l.text, "#")
			at := p.name
			if target != "" {
				at = path.Join(path.Dir(p.name), strings.TrimSuffix(target, "/"))
			}
			if !files[at] && !folders[at] {
				t.Errorf("%s:%d: link to %s: no such file", p.name, l.line, l.text)
				continue
			}
			if anchor == "" {
				continue
			}
			i := slices.IndexFunc(all, func(q page) bool { return q.name == at })
			if i < 0 || !slices.Contains(anchors(all[i].text), anchor) {
				t.Errorf("%s:%d: link to %s: no such heading", p.name, l.line, l.text)
			}
		}
	}
	if checked < 15 {
		t.Errorf("%d links checked, want at least 15", checked)
	}
}

// The log is found by its index: each page has one line there.
func TestLogHasAnIndex(t *testing.T) {
	index := readPages(t, "docs/log/README.md")
	all := readPages(t, "docs/log/*.md")
	if len(index) != 1 || len(all) < 5 {
		t.Fatalf("%d indexes and %d pages in docs/log, want one and at least five", len(index), len(all))
	}
	for _, p := range all {
		name := path.Base(p.name)
		if got := strings.Count(index[0].text, "]("+name+")"); got != 1 && name != "README.md" {
			t.Errorf("%s: %d links in docs/log/README.md, want 1", p.name, got)
		}
	}
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchors are the ids that GitHub gives a page's headings.
func anchors(text string) []string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "#") {
			title := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			out = append(out, strings.ReplaceAll(notInAnchor.ReplaceAllString(title, ""), " ", "-"))
		}
	}
	return out
}

var goFile = regexp.MustCompile(`^[a-z0-9_]+\.go$`)

// TestNamedFilesExist checks code spans that name a path of the source tree, or a Go file.
func TestNamedFilesExist(t *testing.T) {
	files, folders := tree(t)
	base := map[string]bool{}
	for f := range files {
		base[path.Base(f)] = true
	}
	checked := 0
	for _, p := range pages(t) {
		for _, s := range p.spans {
			name := strings.TrimPrefix(s.text, "./")
			if strings.ContainsAny(name, " <>*…={}$") || strings.Contains(name, "NAME") {
				continue
			}
			top, rest, nested := strings.Cut(name, "/")
			switch {
			case goFile.MatchString(name):
				if checked++; !base[name] {
					t.Errorf("%s:%d: `%s`: no file of that name", p.name, s.line, s.text)
				}
			case nested && folders[top] && path.Ext(rest) == "" && !strings.HasSuffix(rest, "/") &&
				!folders[strings.TrimSuffix(name, "/")] && !files[name]:
				// a config group such as grpo/kl is no path of the source tree
			case nested && folders[top]:
				if checked++; !files[name] && !folders[strings.TrimSuffix(name, "/")] {
					t.Errorf("%s:%d: `%s`: no such file or folder", p.name, s.line, s.text)
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d files checked, want at least 30", checked)
	}
}

var treeLine = regexp.MustCompile(`^([.\w/-]+)/ `)

// TestTreeIsComplete compares the annotated tree with the folders that are there.
func TestTreeIsComplete(t *testing.T) {
	_, folders := tree(t)
	text, err := os.ReadFile(docsPath("architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "<!-- tree -->\n```text\n")
	block, _, closed := strings.Cut(rest, "\n```")
	if !found || !closed {
		t.Fatal("docs/architecture.md: want a ```text block after <!-- tree -->")
	}
	shown := map[string]bool{}
	for _, line := range strings.Split(block, "\n") {
		if m := treeLine.FindStringSubmatch(line); m != nil {
			if shown[m[1]] = true; !folders[m[1]] {
				t.Errorf("docs/architecture.md's tree shows %s/, which does not exist", m[1])
			}
		}
	}
	for folder := range folders {
		if !strings.Contains(folder, "/") && !shown[folder] && (folder == ".ci" || !strings.HasPrefix(folder, ".")) {
			t.Errorf("docs/architecture.md's tree leaves out %s/", folder)
		}
	}
}

var registered = regexp.MustCompile("line in `(\\w+)\\(\\)` of `([^`]+)`")

// TestTablesToRegisterInAreThere: what docs/extending.md says of where an entry is added names functions that are there.
func TestTablesToRegisterInAreThere(t *testing.T) {
	text, err := os.ReadFile(docsPath("extending.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := registered.FindAllStringSubmatch(string(text), -1)
	for _, m := range rows {
		code, err := os.ReadFile(filepath.Join(golden.RepoRoot(), m[2]))
		if err != nil || !strings.Contains(string(code), "func "+m[1]+"(") {
			t.Errorf("docs/extending.md: %s has no %s(): %v", m[2], m[1], err)
		}
	}
	if len(rows) < 5 {
		t.Errorf("%d places, want at least 5", len(rows))
	}
}

// TestReadmeIsShort: what does not fit on a page belongs into docs/.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.RepoRoot(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 900 {
		t.Errorf("README.md has %d words, want at most 900", n)
	}
}

// TestReadmeNamesTheTestCommand: scripts read the command for the tests from this line.
func TestReadmeNamesTheTestCommand(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.RepoRoot(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Split(string(text), "\n"), "make test") {
		t.Error("README.md: want a line that is exactly: make test")
	}
}

// mostWordsOfDocs is what README.md and docs/*.md may hold, benchmarks.md left out. The number may only fall.
const mostWordsOfDocs = 55_000

// TestDocsStayShort: history and measurements belong to docs/log/, and a thing is said on one page.
func TestDocsStayShort(t *testing.T) {
	words := 0
	var counts []string
	for _, p := range readPages(t, "README.md", "docs/*.md") {
		if n := len(strings.Fields(p.text)); p.name != "docs/benchmarks.md" {
			words += n
			counts = append(counts, fmt.Sprintf("%6d %s", n, p.name))
		}
	}
	slices.Sort(counts)
	if slices.Reverse(counts); words > mostWordsOfDocs || len(counts) < 20 {
		t.Errorf("%d words on %d pages, want at most %d: say a thing once and link to it\n%s", words, len(counts), mostWordsOfDocs,
			strings.Join(counts, "\n"))
	}
}
