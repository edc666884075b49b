package arrows

import (
	"go/ast"
	"go/types"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// unread are the keys whose field nothing reads, and why.
var unread = map[string]string{
	"slurm.Options.SubmititFolder": "submitit's: another folder is refused",
	"slurm.Options.Python":         "submitit's: another program is refused",
	"phases.OptimOptions.Name":     "there is one optimizer",
	"sweeper.Options.Params":       "configs reads it from the tree, before there are options",
	"job.Config.Vars":              "the user's own: interpolations read them",
	"record.FigureOptions.Width":   "the report reads it from the configuration that the run has saved",
}

// Every key that a configuration may set is read by something. A key is a documented field with a koanf tag, which is
// what docs/configuration.md is made from. Validation does not count as reading, and neither does setting a default.
func TestEveryKeyIsRead(t *testing.T) {
	const mode = packages.NeedName | packages.NeedSyntax |
		packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports
	loaded, err := packages.Load(&packages.Config{Mode: mode, Dir: "../.."}, "fulcrum/...")
	if err != nil {
		t.Fatal(err)
	}
	fields, read := map[*types.Var]string{}, map[*types.Var]bool{}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			t.Fatalf("%s: %v", p.PkgPath, p.Errors)
		}
		for _, file := range p.Syntax {
			keys(p, file, fields)
			reads(p, file, read)
		}
	}
	if len(fields) < 400 {
		t.Errorf("found %d keys: the search has lost some", len(fields))
	}
	var idle []string
	for field, name := range fields {
		if !read[field] && !isWeight(name) {
			idle = append(idle, name)
		}
	}
	slices.Sort(idle)
	if want := slices.Sorted(maps.Keys(unread)); !slices.Equal(idle, want) {
		t.Errorf("keys that nothing reads:\n got %s\nwant %s", strings.Join(idle, " "), strings.Join(want, " "))
	}
}

// isWeight reports whether a key is the weight of a reward: reward.Options.terms reads it of every term by its name.
func isWeight(name string) bool {
	return strings.HasPrefix(name, "reward.") && strings.HasSuffix(name, "Options.Weight")
}

// keys notes the fields of a file's options that are single values.
func keys(p *packages.Package, file *ast.File, fields map[*types.Var]string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		s, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range s.Fields.List {
			if f.Tag == nil || f.Doc == nil {
				continue
			}
			tag, _ := strconv.Unquote(f.Tag.Value)
			key := reflect.StructTag(tag).Get("koanf")
			for _, name := range f.Names {
				field, ok := p.TypesInfo.Defs[name].(*types.Var)
				if ok && key != "" && key != "-" && !isStruct(field.Type()) {
					fields[field] = p.Name + "." + spec.Name.Name + "." + name.Name
				}
			}
		}
		return true
	})
}

func isStruct(t types.Type) bool {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	_, ok := t.Underlying().(*types.Struct)
	return ok
}

// reads notes the fields that a file uses, outside of validation, other than to set them.
func reads(p *packages.Package, file *ast.File, read map[*types.Var]bool) {
	set := map[*ast.SelectorExpr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return !strings.HasPrefix(n.Name.Name, "Validate")
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				if s, ok := to.(*ast.SelectorExpr); ok {
					set[s] = true
				}
			}
		case *ast.SelectorExpr:
			if s := p.TypesInfo.Selections[n]; s != nil && !set[n] {
				if field, ok := s.Obj().(*types.Var); ok {
					read[field] = true
				}
			}
		}
		return true
	})
}
