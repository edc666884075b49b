package configs

import (
	"cmp"
	"slices"
	"strings"
)

// item is one entry of a defaults list: a config, a group choice or _self_.
type item struct {
	group    string   // "" for a config
	path     string   // config: its path
	name     string   // group: the chosen option
	options  []string // group: several options
	isList   bool
	isNull   bool
	self     bool
	optional bool
	override bool
	appended bool // added by +group=option on the command line
	primary  bool
	deleted  bool

	shortGroup string // of `group: sub/x`: group, where the item is group/sub: x

	pkg    string // @package of the item
	hasPkg bool
	origin Origin

	baseDir   string // group path of the file that holds the item
	parentPkg string // its final package
	header    string // @package line of the chosen file, absolute
	hasHeader bool
}

func parseDefaults(config string, d *Node) ([]*item, error) {
	if d.Kind != List {
		return nil, errorAt(d.Origin, "invalid defaults list in '%s': defaults must be a list, got %s", config, d.Kind)
	}
	var items []*item
	var faults Errors
	for _, n := range d.Vals {
		it, err := parseItem(n)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		it.origin = n.Origin
		items = append(items, it)
	}
	return items, faults.err()
}

func parseItem(n *Node) (*item, *Error) {
	bad := func(format string, args ...any) (*item, *Error) { return nil, errorAt(n.Origin, format, args...) }
	switch n.Kind {
	case String:
		return parseConfigItem(n)
	case Map:
	default:
		return bad("Unsupported type in defaults: %s: want a config, group: option or _self_", n.Kind)
	}
	if len(n.Keys) == 0 {
		return bad("Missing group name in a defaults list")
	}
	if len(n.Keys) != 1 {
		return bad("Too many keys in default item: %d, want one, group: option", len(n.Keys))
	}
	if n.Keys[0].Kind != String {
		return bad("the group %s is not text", n.Keys[0].Text)
	}
	words := strings.Fields(n.Keys[0].Text)
	if len(words) == 0 {
		return bad("Missing group name in a defaults list")
	}
	it := &item{group: words[len(words)-1]}
	for _, w := range words[:len(words)-1] {
		switch w {
		case "optional":
			it.optional = true
		case "override":
			it.override = true
		default:
			return bad("Unsupported keyword '%s' in defaults list, in %q%s: want optional or override", w, n.Keys[0].Text,
				didYouMean(w, []string{"optional", "override"}))
		}
	}
	it.splitPackage(&it.group)
	if it.group == "" || it.group == "/" {
		return bad("Missing group name in a defaults list")
	}
	if err := checkPath(it.group); err != "" {
		return bad("%s", err)
	}
	return it, it.takeOption(n.Vals[0])
}

// parseConfigItem reads a config or _self_.
func parseConfigItem(n *Node) (*item, *Error) {
	bad := func(format string, args ...any) (*item, *Error) { return nil, errorAt(n.Origin, format, args...) }
	it := &item{path: n.Text}
	it.splitPackage(&it.path)
	it.self = it.path == "_self_"
	switch {
	case it.self && it.hasPkg:
		return bad("_self_@PACKAGE is not supported")
	case it.path == "" || it.path == missing:
		return bad("%q in a defaults list: want a config, group: option or _self_", n.Text)
	case strings.ContainsAny(it.path, " \t") && !strings.Contains(it.path, "${"):
		return bad("%q in a defaults list: keywords are for group: option", n.Text)
	}
	if err := checkPath(it.path); err != "" {
		return bad("%s", err)
	}
	return it, nil
}

// takeOption reads what stands behind group: an option, a list of them or null.
func (it *item) takeOption(v *Node) *Error {
	switch v.Kind {
	case Null:
		it.isNull = true
	case String:
		it.name = v.Text
		if err := checkPath(v.Text); err != "" {
			return errorAt(v.Origin, "%s", err)
		}
		// `group: sub/x` means `group/sub: x`: the package gains sub
		if i := strings.LastIndexByte(v.Text, '/'); i > 0 && !strings.Contains(v.Text, "${") {
			it.shortGroup = it.group
			it.group += "/" + v.Text[:i]
			it.name = v.Text[i+1:]
		}
	case List:
		it.isList = true
		for _, o := range v.Vals {
			if o.Kind != String {
				return errorAt(o.Origin, "Unsupported item value in defaults: %s as an option: nested list items must be strings", o.Kind)
			}
			if strings.Contains(o.Text, "${") {
				return errorAt(o.Origin, "Defaults List interpolation is not supported in options list items")
			}
			if err := checkPath(o.Text); err != "" {
				return errorAt(o.Origin, "%s", err)
			}
			it.options = append(it.options, o.Text)
		}
	default:
		return errorAt(v.Origin, "Unsupported item value in defaults: %s as an option: want a string, a list of strings or null", v.Kind)
	}
	return nil
}

// checkPath refuses paths that could leave the search path.
func checkPath(p string) string {
	if strings.Contains(p, `\`) {
		return `"` + p + `": want / between the parts of a path, not \`
	}
	if slices.Contains(strings.Split(p, "/"), "..") {
		return `"` + p + `": Parent traversal ('..') in Defaults List paths is not supported`
	}
	return ""
}

func (it *item) splitPackage(s *string) {
	if before, after, ok := strings.Cut(*s, "@"); ok {
		*s = before
		it.hasPkg = true
		after, _, _ = strings.Cut(after, ":") // group@old:new, a renaming of Hydra 1.0: old counts
		if after != "_here_" {
			it.pkg = after
		}
	}
}

func (it *item) isGroup() bool { return it.group != "" }

func (it *item) interpolated() bool {
	if it.isGroup() {
		return !it.isList && strings.Contains(it.name, "${")
	}
	return strings.Contains(it.path, "${")
}

func (it *item) isMissing() bool { return it.isGroup() && !it.isList && it.name == missing }

func join(dir, rest string) string {
	switch {
	case dir == "":
		return rest
	case rest == "":
		return dir
	}
	return dir + "/" + rest
}

func splitDir(p string) (dir, base string) {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i], p[i+1:]
	}
	return "", p
}

// groupPath is the absolute group: where the chosen file lies.
func (it *item) groupPath() string {
	if it.isGroup() {
		return it.absolute(it.group)
	}
	p, abs := strings.CutPrefix(it.path, "/")
	dir, _ := splitDir(p)
	if abs {
		return dir
	}
	return join(it.baseDir, dir)
}

// absolute is the path of a group from the root of the search path.
func (it *item) absolute(group string) string {
	if g, abs := strings.CutPrefix(group, "/"); abs || it.appended {
		return g
	}
	return join(it.baseDir, group)
}

// configPath is the absolute path of the chosen config.
func (it *item) configPath() string {
	if it.isGroup() {
		return it.groupPath() + "/" + it.name
	}
	if p, abs := strings.CutPrefix(it.path, "/"); abs {
		return p
	}
	return join(it.baseDir, it.path)
}

// finalPackage is where the content lands, as a dotted path from the root ("" = the root).
func (it *item) finalPackage(withHeader bool) string {
	pkg := ""
	switch {
	case it.hasPkg:
		pkg = it.pkg
	case withHeader && it.hasHeader:
		pkg = it.header
	case it.isGroup():
		pkg = strings.ReplaceAll(strings.TrimPrefix(it.group, "/"), "/", ".")
	default:
		dir, _ := splitDir(strings.TrimPrefix(it.path, "/"))
		pkg = strings.ReplaceAll(dir, "/", ".")
	}
	parent := it.parentPkg
	if it.appended {
		parent = ""
	}
	full := strings.Trim(parent+"."+pkg, ".")
	if i := strings.LastIndex(full, "_global_"); i >= 0 {
		full = strings.TrimPrefix(full[i+len("_global_"):], ".")
	}
	return full
}

// overrideKey is the name of a group item on the command line and in hydra.runtime.choices.
func (it *item) overrideKey() string {
	g := it.groupPath()
	final := it.finalPackage(false)
	if final == strings.ReplaceAll(g, "/", ".") {
		return g
	}
	return g + "@" + cmp.Or(final, "_global_")
}

// setHeader takes the package of the chosen file's header; headers are absolute.
func (it *item) setHeader(f *configFile) {
	if f == nil || !f.hasPkg {
		return
	}
	it.hasHeader = true
	it.header = f.pkg
	if f.pkg != "_global_" && !strings.HasPrefix(f.pkg, "_global_.") {
		it.header = strings.TrimSuffix("_global_."+f.pkg, ".")
	}
}

func (it *item) describe() string {
	if !it.isGroup() {
		return it.path
	}
	return it.overrideKey() + ": " + it.choice()
}

// choice is the option of a group item in the words of a file.
func (it *item) choice() string {
	switch {
	case it.isNull:
		return "null"
	case it.isList:
		return "[" + strings.Join(it.options, ", ") + "]"
	}
	return it.name
}

// typed is a group item as its file has it.
func (it *item) typed() string {
	key := it.group
	if it.hasPkg {
		key += "@" + cmp.Or(it.pkg, "_here_")
	}
	return key + ": " + it.choice()
}
