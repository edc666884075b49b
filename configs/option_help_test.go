package configs

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// option_help.txt holds the doc comments of all options: a program cannot read its own comments.
func TestOptionHelpIsCurrent(t *testing.T) {
	lines := optionComments(t)
	if len(lines) < 500 {
		t.Errorf("%d options have a doc comment, want at least 500: the search has lost some", len(lines))
	}
	golden.File(t, "option_help.txt", []byte(strings.Join(lines, "\n")+"\n"))
	if t.Failed() {
		t.Log("a doc comment of an option has changed: go generate ./configs")
	}
}

// optionComments returns a line for each documented field with a koanf tag: import path.Type.Field, tab, comment.
func optionComments(t *testing.T) []string {
	t.Helper()
	root := golden.RepoRoot()
	var lines []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		skipped := []string{"bin", "build", "outputs", "multirun", "scripts", "testdata"}
		if entry.IsDir() && name != root && (strings.HasPrefix(entry.Name(), ".") || slices.Contains(skipped, entry.Name())) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		lines = append(lines, fileComments(file, path.Join("fulcrum", filepath.ToSlash(folder)))...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

func fileComments(file *ast.File, importPath string) []string {
	var lines []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		options, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range options.Fields.List {
			if f.Tag == nil || f.Doc == nil {
				continue
			}
			tag, _ := strconv.Unquote(f.Tag.Value)
			if key, _, _ := strings.Cut(reflect.StructTag(tag).Get("koanf"), ","); key == "" || key == "-" {
				continue
			}
			for _, name := range f.Names {
				text := strings.Join(strings.Fields(f.Doc.Text()), " ")
				lines = append(lines, fmt.Sprintf("%s.%s.%s\t%s", importPath, spec.Name, name, text))
			}
		}
		return true
	})
	return lines
}
