package arrows

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAStepIsAPage: what one GRPO step does stands in six files, which a newcomer reads in an hour. Tables of choices, metrics, options,
// graphs and what is done ahead stand elsewhere. docs/architecture.md names the same files.
func TestAStepIsAPage(t *testing.T) {
	const most = 750
	page := []string{"phases/grpo/grpo.go", "phases/grpo/rollout.go", "phases/grpo/loss.go", "phases/grpo/frozen.go", "phases/step.go",
		"phases/objective/objective.go"}
	lines, names := 0, []string{"Collect", "Inputs", "Loss", "Make", "backward", "descend", "surrogate"}
	for _, s := range sources(t) {
		if !slices.Contains(page, s.file) {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", s.file))
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
		for _, declaration := range s.ast.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				names = slices.DeleteFunc(names, func(name string) bool { return name == f.Name.Name })
			}
		}
	}
	if lines > most || lines < 300 {
		t.Errorf("a GRPO step is %d lines, want at most %d", lines, most)
	}
	if len(names) > 0 {
		t.Errorf("%s stand elsewhere than in %s", strings.Join(names, ", "), strings.Join(page, ", "))
	}
}

// TestTheLoopKnowsNoDevice: the scheduler's epoch is a loop over steps. What is launched ahead is not its business.
func TestTheLoopKnowsNoDevice(t *testing.T) {
	const most = 36
	for _, s := range sources(t) {
		if s.file != "phases/scheduler.go" {
			continue
		}
		for _, declaration := range s.ast.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok || f.Name.Name != "epoch" {
				continue
			}
			if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > most {
				t.Errorf("%s: epoch has %d lines, want at most %d", s.at(f.Pos()), n, most)
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok && slices.Contains([]string{"Next", "inFlight", "LookAhead"}, name.Name) {
					t.Errorf("%s: epoch knows %s", s.at(name.Pos()), name.Name)
				}
				return true
			})
			return
		}
	}
	t.Error("no function epoch in phases/scheduler.go")
}
