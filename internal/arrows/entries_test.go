package arrows

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// entryNames are the values of task and policy.
func entryNames() []string {
	return []string{"train", "predict", "evaluate", "generate", "score", "beams", "embed", "infer", "icl", "pointer", "qwen2_5_vl", "seq2seq"}
}

// namedElsewhere lists files that compare such a name, which an entry should say instead. It may only get shorter. Reports read what a
// finished run has recorded, and have no tables.
func namedElsewhere() []string {
	return []string{
		"cmd/run/verb_report.go", "cmd/run/verb_verify.go", "experiments/tasks/icl_stages.go", "experiments/workload/local_scorer.go",
		"reports/record/run.go", "reports/runreport/report_findings.go", "reports/sweepreport/read.go", "reports/verify/again.go",
		"reports/verify/rows.go", "selector/pointer/checkpoint.go", "selector/tokens/folder_sampling.go",
	}
}

// TestEntriesSayWhatTheyAre: no task and no policy is told apart by its name, but by what its entry says.
func TestEntriesSayWhatTheyAre(t *testing.T) {
	elsewhere := map[string]bool{}
	for _, file := range namedElsewhere() {
		elsewhere[file] = false
	}
	seen := 0
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.folder, testkit+"/") {
			continue
		}
		fault := func(at token.Pos, name string) {
			if _, listed := elsewhere[s.file]; listed {
				elsewhere[s.file] = true
				return
			}
			t.Errorf("%s: compares a task or a policy with %q: let its entry say what it is (job.Task, job.Policy)", s.at(at), name)
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					seen++
					for _, pair := range [][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
						if name, ok := entryName(pair[1]); ok && choosesEntry(pair[0]) {
							fault(n.Pos(), name)
						}
					}
				}
			case *ast.SwitchStmt:
				if n.Tag == nil || !choosesEntry(n.Tag) {
					return true
				}
				for _, c := range n.Body.List {
					for _, e := range c.(*ast.CaseClause).List {
						if name, ok := entryName(e); ok {
							fault(e.Pos(), name)
						}
					}
				}
			}
			return true
		})
	}
	for file, found := range elsewhere {
		if !found {
			t.Errorf("%s is listed and compares no name", file)
		}
	}
	if seen < 1000 {
		t.Errorf("saw %d comparisons", seen)
	}
}

// entryName returns the name that a literal holds, or a constant called Kind.
func entryName(e ast.Expr) (string, bool) {
	if text, ok := literal(e); ok {
		return text, slices.Contains(entryNames(), text)
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Kind" {
		return "", false
	}
	pkg, ok := s.X.(*ast.Ident)
	return "Kind", ok && slices.Contains([]string{"vl", "seq2seq"}, pkg.Name)
}

// choosesEntry reports whether an expression is called task or policy, or reads such a key.
func choosesEntry(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	case *ast.CallExpr:
		name = called(e.Fun)
		for _, arg := range e.Args {
			if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				name, _ = strconv.Unquote(lit.Value)
			}
		}
	}
	name = strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	return slices.Contains([]string{"task", "policy", "kind", "of", "taskof"}, name)
}
