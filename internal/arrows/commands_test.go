package arrows

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestCommandsArePrintedWhole: a command of ours inside a message stands in backticks, so that a terminal shows it on a line of its
// own and with the program's name as it was called; words that are not known here are quoted by program.Command.
func TestCommandsArePrintedWhole(t *testing.T) {
	files, err := filepath.Glob("../../cmd/run/verb_*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	var verbs []string
	for _, f := range files {
		verbs = append(verbs, strings.NewReplacer("_", "-", ".go", "").Replace(strings.TrimPrefix(filepath.Base(f), "verb_")))
	}
	bare := regexp.MustCompile(`(^|[\s(])run ((` + strings.Join(verbs, "|") + `)( |$)|--?[a-z]|(exp|task|policy|data)=)`)
	inside, blank := regexp.MustCompile("`[^`]*`"), regexp.MustCompile("`run [^`]*%[^`]*`")
	seen := 0
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.folder, testkit+"/") {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			text, isText := literal(n)
			if !isText {
				if kv, ok := n.(*ast.KeyValueExpr); ok { // the help text of a command lists its forms
					key, named := kv.Key.(*ast.Ident)
					return !named || key.Name != "usage"
				}
				return true
			}
			seen += strings.Count(text, "`run ")
			whole := strings.HasPrefix(text, "run ") // a help text, or a block of code
			if found := bare.FindString(inside.ReplaceAllString(text, "")); found != "" && !whole {
				t.Errorf("%s: %q in %q: write a command in backticks", s.at(n.Pos()), found, text)
			}
			if found := blank.FindString(text); found != "" && s.folder != "cmd/run" && s.folder != "internal/program" {
				t.Errorf("%s: %s: quote its words: program.Command", s.at(n.Pos()), found)
			}
			return false
		})
	}
	if seen < 20 {
		t.Errorf("saw %d commands in messages, want at least 20", seen)
	}
}

// literal is the text of a literal or of a sum of texts, with %s where something else is added.
func literal(n ast.Node) (text string, ok bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			text, err := strconv.Unquote(n.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		a, okA := literal(n.X)
		b, okB := literal(n.Y)
		if n.Op != token.ADD || !okA && !okB {
			return "", false
		}
		if !okA {
			a = "%s"
		}
		if !okB {
			b = "%s"
		}
		return a + b, true
	}
	return "", false
}
