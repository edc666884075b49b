package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// goNames are the packages of the repository, by name, with what they declare, and all names together: types,
// functions, methods, fields, constants and variables, those of tests included.
type goNames struct {
	packages map[string]map[string]bool
	all      map[string]bool
}

func readGoNames(t *testing.T) goNames {
	t.Helper()
	names := goNames{map[string]map[string]bool{}, map[string]bool{}}
	err := filepath.WalkDir(golden.RepoRoot(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && entry.Name() != "." || entry.Name() == "testdata" ||
			entry.Name() == "build") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		own := names.packages[file.Name.Name]
		if own == nil {
			own = map[string]bool{}
			names.packages[file.Name.Name] = own
		}
		ast.Inspect(file, func(n ast.Node) bool {
			var found []*ast.Ident
			switch n := n.(type) {
			case *ast.FuncDecl:
				found = []*ast.Ident{n.Name}
			case *ast.TypeSpec:
				found = []*ast.Ident{n.Name}
			case *ast.ValueSpec:
				found = n.Names
			case *ast.Field:
				found = n.Names
			}
			for _, id := range found {
				own[id.Name], names.all[id.Name] = true, true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names.packages) < 40 {
		t.Fatalf("%d packages seen, want the whole repository", len(names.packages))
	}
	return names
}

var (
	qualifiedName = regexp.MustCompile(`^\*?([a-z]\w*)\.([A-Z]\w*)((?:\.[A-Za-z]\w*)*)(?:[({].*)?$`)
	memberName    = regexp.MustCompile(`^\*?([A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*)\.([A-Za-z]\w*)(?:[({].*)?$`)
	camelName     = regexp.MustCompile(`^([A-Z][a-z0-9]+[A-Z]\w*|[a-z]+[a-z0-9]*[A-Z]\w*)(?:\(.*\))?$`)
)

// TestGoNamesExist: a name of our code in a page is one that the code has. Pages that tell history or speak of other
// programs' names are left out.
func TestGoNamesExist(t *testing.T) {
	names := readGoNames(t)
	checked := 0
	for _, p := range pages(t) {
		switch filepath.Base(p.name) {
		case "architecture.md", "algorithms.md", "extending.md", "statistics.md", "metrics.md", "reports.md":
		default:
			continue
		}
		for _, s := range p.spans {
			if m := qualifiedName.FindStringSubmatch(s.text); m != nil && names.packages[m[1]] != nil {
				checked++
				if !names.packages[m[1]][m[2]] {
					t.Errorf("%s:%d: `%s`: package %s has no %s", p.name, s.line, s.text, m[1], m[2])
				}
				for _, part := range strings.FieldsFunc(m[3], func(r rune) bool { return r == '.' }) {
					if !names.all[part] {
						t.Errorf("%s:%d: `%s`: nothing is called %s", p.name, s.line, s.text, part)
					}
				}
			} else if m := memberName.FindStringSubmatch(s.text); m != nil {
				checked++
				for _, part := range m[1:] {
					if !names.all[part] {
						t.Errorf("%s:%d: `%s`: nothing is called %s", p.name, s.line, s.text, part)
					}
				}
			} else if m := camelName.FindStringSubmatch(s.text); m != nil {
				checked++
				if !names.all[m[1]] && !foreign()[m[1]] {
					t.Errorf("%s:%d: `%s`: no Go file declares it", p.name, s.line, s.text)
				}
			}
		}
	}
	if checked < 60 {
		t.Errorf("%d Go names checked, want at least 60", checked)
	}
}

// foreign lists names of other programs that these pages mention.
func foreign() map[string]bool {
	return map[string]bool{"DefaultXOptions": true}
}
