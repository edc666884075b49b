// Package arrows keeps the tree in the order that docs/architecture.md draws: a package imports only
// packages below its own layer. It reads the sources and has nothing to import.
package arrows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "fulcrum"

// testkit holds what tests of several packages share. Tests import it from anywhere, and nothing else does.
const testkit = "internal/testkit"

// layers from top to bottom: a package may import what stands below it, and its own folder.
func layers() []string {
	return []string{
		"cmd/run", "cmd/bench", testkit, "experiments", "experiments/tasks", "experiments/checks", "experiments/workload",
		"experiments/icl", "experiments/leverplus", "experiments/prove", "experiments/job", "experiments/lvlm",
		"experiments/sweep", "experiments/runfolder", "experiments/bench",
		"phases", "selector", "beamdata", "rewardutil",
		"reports/board", "reports/verify", "reports/published", "reports/export", "reports/compare", "reports/sweepreport", "reports/runreport",
		"reports/arms", "reports/results", "reports/chart", "reports/mlflow", "reports/wandb", "reports/tracker",
		"reports/curves", "reports/sweeps", "reports/looks", "reports/record", "reports/stats",
		"reports/webchart", "reports/page", "reports", "configs",
		"internal/torchx", "internal",
	}
}

// layer returns the index of the longest layer name that holds the package folder, or -1.
func layer(folder string) int {
	best := -1
	for i, name := range layers() {
		if (folder == name || strings.HasPrefix(folder, name+"/")) && (best < 0 || len(name) > len(layers()[best])) {
			best = i
		}
	}
	return best
}

// startsFast lists the layers that command lines without a tensor use: importing torchx there would
// make them load cgo code, and tempt them to load libtorch.
func startsFast() []string { return []string{"beamdata", "rewardutil", "reports", "configs"} }

type source struct {
	folder, file string // relative to the repository, with slashes
	test         bool
	ast          *ast.File
	fset         *token.FileSet
}

func (s source) at(pos token.Pos) string {
	return s.file + ":" + strconv.Itoa(s.fset.Position(pos).Line)
}

// sources parses every Go file of the repository; dev tools under scripts/ are not the product.
func sources(t *testing.T) []source {
	t.Helper()
	root := "../.."
	var found []source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && relative != "."
			if hidden || entry.Name() == "testdata" || slices.Contains([]string{"bin", "build", "outputs", "multirun", "scripts"}, relative) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			return err
		}
		found = append(found, source{path.Dir(relative), relative, strings.HasSuffix(name, "_test.go"), file, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil || len(found) < 10 {
		t.Fatalf("saw %d Go files below the repository's root, want the whole tree (%v)", len(found), err)
	}
	return found
}

func TestLayer(t *testing.T) {
	for folder, want := range map[string]string{"cmd/run": "cmd/run", "selector/pointer": "selector", "reports/page": "reports/page",
		"internal/torchx/loadtest": "internal/torchx", "internal/rng": "internal", "nowhere": ""} {
		if got := layer(folder); got != slices.Index(layers(), want) {
			t.Errorf("layer(%q) = %d, want that of %q", folder, got, want)
		}
	}
}

// linked returns the folders whose code is in a program: what its sources import, directly or not.
func linked(t *testing.T, program string) map[string]bool {
	imports := map[string][]string{}
	for _, s := range sources(t) {
		for _, spec := range s.ast.Imports {
			if folder, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/"); ours && !s.test {
				imports[s.folder] = append(imports[s.folder], folder)
			}
		}
	}
	in := map[string]bool{}
	var add func(folder string)
	add = func(folder string) {
		if !in[folder] {
			in[folder] = true
			for _, below := range imports[folder] {
				add(below)
			}
		}
	}
	add(program)
	return in
}

// TestMeasuringIsAProgramOfItsOwn: cmd/bench has the code that measures, and the program that trains does not.
func TestMeasuringIsAProgramOfItsOwn(t *testing.T) {
	run, bench := linked(t, "cmd/run"), linked(t, "cmd/bench")
	for _, folder := range []string{"experiments/bench", "experiments/measure"} {
		if run[folder] || !bench[folder] {
			t.Errorf("%s in cmd/run: %v, in cmd/bench: %v; want it in cmd/bench alone", folder, run[folder], bench[folder])
		}
	}
}

func TestImportsGoDown(t *testing.T) {
	for _, s := range sources(t) {
		from := layer(s.folder)
		if from < 0 {
			t.Errorf("%s: folder %s is in no layer: add it to layers() and to the architecture page", s.file, s.folder)
			continue
		}
		for _, spec := range s.ast.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if name == "C" && layers()[from] != "internal/torchx" {
				t.Errorf("%s: cgo belongs to internal/torchx", s.at(spec.Pos()))
			}
			folder, ours := strings.CutPrefix(name, module+"/")
			top := layers()[from]
			house, _, _ := strings.Cut(s.folder, "/")
			if slices.Contains(startsFast(), house) && (strings.Contains(name, "gotorch") || layer(folder) == layer("internal/torchx")) {
				t.Errorf("%s: %s imports %s, but it serves commands that must not need libtorch", s.at(spec.Pos()), top, name)
			}
			// A test in a package of its own may use the house that its room is in: a sweep's, the jobs of experiments.
			outside := s.test && strings.HasSuffix(s.ast.Name.Name, "_test") && folder == house
			if kit := strings.HasPrefix(folder, testkit+"/"); kit && !s.test && !strings.HasPrefix(s.folder, testkit+"/") {
				t.Errorf("%s: %s imports %s, which is for tests alone", s.at(spec.Pos()), s.folder, folder)
			} else if ours && layer(folder) < from && !outside && !kit {
				t.Errorf("%s: %s imports %s, which stands above it (%s)", s.at(spec.Pos()), top, folder, strings.Join(layers(), " → "))
			}
		}
	}
}

func TestPackageNamesSayWhatTheyHold(t *testing.T) {
	banned := []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "shared"}
	for _, s := range sources(t) {
		if slices.Contains(banned, s.ast.Name.Name) || slices.Contains(banned, path.Base(s.folder)) {
			t.Errorf("%s: no package named %s: name it after what it holds", s.file, s.ast.Name.Name)
		}
	}
}

// TestExitsAndInits: one place of each program ends the process, and nothing runs before main.
func TestExitsAndInits(t *testing.T) {
	exits := []string{"cmd/run/exit.go", "cmd/bench/main.go"}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, declaration := range s.ast.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: no init(): register in the catalog", s.at(f.Pos()))
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := selector.X.(*ast.Ident)
			if !ok || slices.Contains(exits, s.file) {
				return true
			}
			name := pkg.Name + "." + selector.Sel.Name
			if name == "os.Exit" || name == "syscall.Exit" || strings.HasPrefix(name, "log.Fatal") {
				t.Errorf("%s: %s outside %v: return an error instead", s.at(call.Pos()), name, exits)
			}
			return true
		})
	}
}

// TestJSONFaultsAreWorded: what encoding/json says of a value of the wrong type holds names of Go types, so an error
// that anybody may read comes from internal/jsonwords.
func TestJSONFaultsAreWorded(t *testing.T) {
	wordsOfTheirOwn := []string{"internal/jsonwords/jsonwords.go", "experiments/workload/text_model.go", "experiments/tasks/task_lines.go",
		"experiments/tasks/lines.go", "experiments/tasks/evaluate_rouge.go"}
	calls := 0
	for _, s := range sources(t) {
		if s.test || slices.Contains(wordsOfTheirOwn, s.file) || strings.HasPrefix(s.folder, testkit+"/") ||
			strings.HasPrefix(s.file, "experiments/bench/") {
			continue
		}
		silent := map[ast.Node]bool{} // calls whose error nobody reads
		for _, declaration := range s.ast.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Name.Name == "UnmarshalJSON" { // jsonwords sees its error outside
				ast.Inspect(f, func(n ast.Node) bool { silent[n] = true; return true })
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr: // json.Unmarshal(…) == nil
				silent[n.X] = true
			case *ast.AssignStmt:
				if name, ok := n.Lhs[0].(*ast.Ident); ok && len(n.Rhs) == 1 && name.Name == "_" {
					silent[n.Rhs[0]] = true
				}
			case *ast.CallExpr:
				name := called(n.Fun)
				if name == "jsonwords.Unmarshal" || name == "jsonwords.Decode" {
					calls++
				}
				if !silent[n] && (name == "json.Unmarshal" || name == "json.NewDecoder().Decode") {
					t.Errorf("%s: %s: read it with internal/jsonwords", s.at(n.Pos()), name)
				}
			}
			return true
		})
	}
	if calls < 40 {
		t.Errorf("%d calls of jsonwords, want at least 40: the test looks at nothing", calls)
	}
}

// called names a function: json.Unmarshal, json.NewDecoder().Decode.
func called(fun ast.Expr) string {
	selector, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	switch x := selector.X.(type) {
	case *ast.Ident:
		return x.Name + "." + selector.Sel.Name
	case *ast.CallExpr:
		return called(x.Fun) + "()." + selector.Sel.Name
	}
	return ""
}

// TestRunFoldersAreOpenedOneWay: anybody may put a pipe, a device or a giant into a run folder, so what reads or writes
// there opens files by internal/regular.
func TestRunFoldersAreOpenedOneWay(t *testing.T) {
	calls := 0
	for _, s := range sources(t) {
		house, _, _ := strings.Cut(s.folder, "/")
		if s.test || !slices.Contains([]string{"cmd", "experiments", "reports", "phases"}, house) ||
			strings.HasPrefix(s.folder, testkit+"/") {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch name := called(call.Fun); {
			case strings.HasPrefix(name, "regular."):
				calls++
			case name == "os.Open" || name == "os.OpenFile" || name == "os.ReadFile":
				t.Errorf("%s: %s waits at a pipe: want regular.Open, OpenFile, ReadDocument or ReadFile", s.at(n.Pos()), name)
			}
			return true
		})
	}
	if calls < 40 {
		t.Errorf("%d calls of regular, want at least 40: the test looks at nothing", calls)
	}
}

// TestStandardOutputIsWatched: results go through internal/stdout, which remembers a full disk for the exit code, and all
// that is printed, since it shows what a terminal would obey. A command of the user's has the standard error itself, and a
// job that is tried prints through a gate of its own.
func TestStandardOutputIsWatched(t *testing.T) {
	own := []string{"experiments/runfolder/on_end.go", "experiments/sweep/dry_run.go"}
	for _, s := range sources(t) {
		if s.test || s.folder == "internal/stdout" || strings.Contains(s.folder, "testdata") || strings.HasPrefix(s.folder, testkit+"/") {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := selector.X.(*ast.Ident); ok {
				name := pkg.Name + "." + selector.Sel.Name
				if name == "os.Stdout" || name == "os.Stderr" && !slices.Contains(own, s.file) || strings.HasPrefix(name, "fmt.Print") {
					t.Errorf("%s: %s: write through internal/stdout", s.at(n.Pos()), name)
				}
			}
			return true
		})
	}
}
