package rewardutil

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// Every function that docs/algorithms.md names must exist.
func TestAlgorithmsPageNamesWhatExists(t *testing.T) {
	root := golden.RepoRoot()
	page, err := os.ReadFile(filepath.Join(root, "docs", "algorithms.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]map[string]bool{}
	checked := 0
	for _, m := range regexp.MustCompile("`([a-z][a-z0-9]*)\\.([A-Za-z0-9.]*[A-Z][A-Za-z0-9.]*)`").FindAllStringSubmatch(string(page), -1) {
		pkg, name := m[1], m[2]
		if names[pkg] == nil {
			names[pkg] = declared(t, root, pkg)
		}
		if !names[pkg][name] {
			t.Errorf("docs/algorithms.md names %s.%s, which does not exist", pkg, name)
		}
		checked++
	}
	if checked < 30 {
		t.Errorf("%d names checked, want at least 30", checked)
	}
}

// declared returns the functions, methods (Type.Method) and types of the packages whose folder has this name.
func declared(t *testing.T, root, folder string) map[string]bool {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && (path == filepath.Join(root, "build") || e.Name() == ".git") {
			return fs.SkipDir
		}
		if filepath.Base(filepath.Dir(path)) == folder && filepath.Ext(path) == ".go" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					recv := d.Recv.List[0].Type
					if star, ok := recv.(*ast.StarExpr); ok {
						recv = star.X
					}
					if id, ok := recv.(*ast.Ident); ok {
						name = id.Name + "." + name
					}
				}
				names[name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok {
						names[ts.Name.Name] = true
					}
				}
			}
		}
	}
	return names
}
