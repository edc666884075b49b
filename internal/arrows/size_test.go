package arrows

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a reader can hold at once.
const (
	columns       = 140 // a tab is one
	fileLines     = 500
	functionLines = 80
	packageLines  = 5000
)

// TestSizes keeps lines, functions, files and packages readable. Lines of raw strings are data; a function that is mostly
// one composite literal or switch is a table; configs is one package because Hydra's grammar and its composition call each other.
func TestSizes(t *testing.T) {
	packages := map[string]int{}
	for _, s := range sources(t) {
		text, err := os.ReadFile(filepath.Join("../..", s.file))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		raw := rawLines(text)
		for i, line := range lines {
			if n := utf8.RuneCountInString(line); n > columns && !raw[i+1] && !oneWord(line) {
				t.Errorf("%s:%d: %d columns, want at most %d", s.file, i+1, n, columns)
			}
		}
		if s.test {
			continue
		}
		packages[s.folder] += len(lines)
		if len(lines) > fileLines {
			t.Errorf("%s: %d lines, want at most %d: what is its second concept?", s.file, len(lines), fileLines)
		}
		for _, declaration := range s.ast.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if n > functionLines && !isTable(s.fset, f, n) {
				t.Errorf("%s: %s has %d lines, want at most %d", s.at(f.Pos()), f.Name.Name, n, functionLines)
			}
		}
	}
	for folder, n := range packages {
		if n > packageLines && folder != "configs" {
			t.Errorf("%s: %d lines, want at most %d: a package has one reason to change", folder, n, packageLines)
		}
	}
}

// isTable reports whether one composite literal, or switch of nothing but returns, makes up more than half of a function of n lines.
func isTable(fset *token.FileSet, f *ast.FuncDecl, n int) bool {
	found := false
	ast.Inspect(f.Body, func(node ast.Node) bool {
		table := false
		switch node := node.(type) {
		case *ast.CompositeLit:
			table = true
		case *ast.SwitchStmt:
			table = !slices.ContainsFunc(node.Body.List, func(c ast.Stmt) bool {
				body := c.(*ast.CaseClause).Body
				return len(body) != 1 || !isReturn(body[0])
			})
		}
		if table {
			found = found || 2*(fset.Position(node.End()).Line-fset.Position(node.Pos()).Line) > n
		}
		return !found
	})
	return found
}

func isReturn(s ast.Stmt) bool {
	_, ok := s.(*ast.ReturnStmt)
	return ok
}

// rawLines returns the numbers of the lines that raw strings reach.
func rawLines(text []byte) map[int]bool {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && lit[0] == '`' {
			first := fset.Position(pos).Line
			for i := range strings.Count(lit, "\n") + 1 {
				lines[first+i] = true
			}
		}
	}
}

// oneWord reports whether a line is a comment or string that cannot be broken: an address, say.
func oneWord(line string) bool { return len(strings.Fields(line)) <= 2 }

func TestSizesSeeFaults(t *testing.T) {
	long := "package p\n\nfunc f() {\n" + strings.Repeat("\tg()\n", 90) +
		"}\n\nfunc table() []int {\n\treturn []int{\n" + strings.Repeat("\t\t1,\n", 90) + "\t}\n}\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", long, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range file.Decls {
		f := declaration.(*ast.FuncDecl)
		if got, want := isTable(fset, f, 93), f.Name.Name == "table"; got != want {
			t.Errorf("isTable(%s) = %v, want %v", f.Name.Name, got, want)
		}
	}
	if raw := rawLines([]byte("package p\n\nvar a = `x\ny\n`\nvar b = \"z\"\n")); !raw[3] || !raw[5] || raw[6] {
		t.Errorf("lines of raw strings: %v", raw)
	}
}
