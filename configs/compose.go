// Package configs composes configuration the way Hydra does: YAML files in groups, a defaults list
// that picks them, overrides from the command line, interpolation, and sweeps. On top of that it
// types a config by option structs (Schema) and names the file, line and column of every fault.
//
// It knows nothing of what is configured: the option structs come from the caller.
//
//	c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: args})
//	err = c.Decode(&options)
//	text, err := c.Explain("grpo.lr")
//
// Reading order: node.go (the tree), yamlread.go, override.go and value.go (the grammar),
// defaults.go and deftree.go (which files), merge.go and edit.go (how they combine), resolve.go
// (interpolation), compose.go (all together), schema.go and check.go (types).
package configs

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/list"
	"fulcrum/internal/regular"
)

// Request says what to compose.
type Request struct {
	ConfigPath string // directory of the primary config (--config-path); empty: Library
	ConfigName string // primary config (--config-name); empty: config
	ConfigDir  string // further directory on the search path (--config-dir)
	Library    fs.FS  // built-in tree; used when ConfigPath is empty
	Beneath    fs.FS  // a tree whose primary config gives what the user's has no values for; nil: none
	Overrides  []string
	Schema     *Schema // nil: no types, any keys (a tree that is not ours)
	Multirun   bool    // sweeps are allowed and ??? groups may stay open
	Now        time.Time
	AppName    string // hydra.job.name unless configured
	OutputDir  string // hydra.runtime.output_dir, absolute; empty: ???
	HydraFile  string // a saved hydra.yaml, whose node takes the place of the composed one: what was read from it is read again

	Getenv func(string) (string, bool) // nil: the process's environment
	Warn   func(string)                // nil: warnings are dropped
}

// Compose builds one config. Nothing is left behind on error: it only reads.
func Compose(req Request) (*Composed, error) {
	c, err := NewComposer(req)
	if err != nil {
		return nil, err
	}
	return c.Compose()
}

// Composer composes many jobs over one library: files are parsed once, and jobs with the same choices share their tree.
// Not for concurrent use; the Composed it returns may be read concurrently once Resolved has been called.
type Composer struct {
	req        Request
	lib        *library
	env        *environment
	overrides  []*Override
	texts      map[canonicalKey]string // of sections
	hydraCheck *Schema
	bases      map[string]*base
	cwd        string
	sourceInfo *Node
}

// base is a tree with all groups merged and no value override applied.
type base struct {
	schema  *Schema // nil: none; with the sections that files and overrides name a kind for
	tree    *Node
	choices []choiceEntry
	list    []content
	root    *treeNode
	jobs    int // composed from it
	memo    *memo

	runtimeIn, runtimeOut *Node // hydra.runtime without and with what Hydra records there
}

// NewComposer parses the overrides and opens the search path.
func NewComposer(req Request) (*Composer, error) {
	req.ConfigName, req.AppName = cmp.Or(req.ConfigName, "config"), cmp.Or(req.AppName, "run")
	if req.Now.IsZero() {
		req.Now = time.Now()
	}
	if req.Getenv == nil {
		req.Getenv = os.LookupEnv
	}
	if req.Warn == nil {
		req.Warn = func(string) {}
	}
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "."
	}
	c := &Composer{req: req, env: &environment{req.Now, req.Getenv, req.Warn}, bases: map[string]*base{}, cwd: cwd}
	if c.overrides, err = parseOverrides(req.Overrides); err != nil {
		return nil, err
	}
	if c.hydraCheck, err = SchemaOf(&HydraConf{}, nil); err != nil {
		return nil, err
	}
	if err := c.openSearchPath(); err != nil {
		return nil, err
	}
	c.sourceInfo = sourceInfo(c.lib)
	c.warnReplaced()
	return c, c.checkSweeps(c.overrides, req.Multirun)
}

// warnReplaced names the choices of a group that a later one takes the place of: the last wins, as in Hydra.
func (c *Composer) warnReplaced() {
	chosen := map[string][]string{}
	for _, o := range c.overrides {
		if key := o.fullKey(); o.Op == opChange && c.isGroup(o) {
			others := slices.DeleteFunc(chosen[key], func(text string) bool { return text == o.Text })
			chosen[key] = append(others, o.Text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(chosen)) {
		if texts := chosen[key]; len(texts) > 1 {
			last := len(texts) - 1
			c.req.Warn(strings.Join(texts[:last], " ") + " has no effect: " + texts[last] + " comes later, and the last choice of a group wins")
		}
	}
}

func (c *Composer) openSearchPath() error {
	builtin := Library()
	c.lib = &library{files: map[string]*configFile{}, groups: map[string]bool{}}
	hydra := embeddedSource("hydra", builtin, ofHydraPackage)
	hydra.path = "pkg://hydra.conf"
	c.lib.add(hydra)
	if c.req.ConfigPath != "" {
		s, err := searchPathEntry("main", c.req.ConfigPath, builtin)
		if err != nil {
			return errorf("Primary config directory not found. Check that the config directory '%s' exists and readable: %v", c.req.ConfigPath, err)
		}
		c.lib.add(s)
	} else if c.req.Library != nil {
		c.lib.add(embeddedSource("main", c.req.Library, nil))
	}
	if c.req.ConfigDir != "" {
		s, err := searchPathEntry("command-line", c.req.ConfigDir, builtin)
		if err != nil {
			return errorf("Additional config directory '%s' not found (%v)", c.req.ConfigDir, err)
		}
		c.lib.add(s)
	}
	entries, provider, where, err := c.searchPathEntries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		s, err := searchPathEntry(provider, e, builtin)
		if err != nil {
			c.req.Warn("provider=" + provider + ", path=" + e + " is not available (" + where.String() + ")")
			continue
		}
		c.lib.add(s)
	}
	registered := embeddedSource("schema", builtin, ofHydra)
	registered.path = "structured://"
	c.lib.add(registered)
	clear(c.lib.groups) // groups and missing files may look different now
	maps.DeleteFunc(c.lib.files, func(_ string, f *configFile) bool { return f == nil })
	return nil
}

// searchPathEntries reads hydra.searchpath from the command line or the primary config.
func (c *Composer) searchPathEntries() (entries []string, provider string, where Origin, err error) {
	var paths *Node
	provider = "hydra.searchpath in command-line"
	for _, o := range c.overrides {
		if o.Key == "hydra.searchpath" && o.Op == opChange && !o.isSweep() {
			paths = o.value.toNode().at(Origin{Source: o.Text})
			break
		}
	}
	if paths == nil || paths.Kind == Null {
		provider = "hydra.searchpath in main"
		f, err := c.lib.load(c.req.ConfigName)
		if err != nil || f == nil {
			return nil, "", where, err
		}
		if n := f.content.Find("hydra.searchpath"); n == nil || n.Kind == Null {
			return nil, "", where, nil
		}
		r := newResolver(f.content, c.env)
		at, err := r.find(0, []string{"hydra", "searchpath"}, r.root)
		if err != nil {
			return nil, "", where, err
		}
		if paths, err = r.expand(at); err != nil {
			return nil, "", where, err
		}
	}
	if paths.Kind != List || slices.ContainsFunc(paths.Vals, func(v *Node) bool { return v.Kind != String }) {
		return nil, "", where, errorAt(paths.Origin, "hydra.searchpath must be a list of strings, got %s", paths.pyStr())
	}
	return list.Map(paths.Vals, (*Node).pyStr), provider, paths.Origin, nil
}

// Compose builds the config of the request itself.
func (c *Composer) Compose() (*Composed, error) {
	return c.compose(c.overrides, c.req.Multirun, jobInfo{})
}

// isGroup reports whether an override is about the defaults list: it chooses an option of a config
// group, or deletes a group or a config from it.
func (c *Composer) isGroup(o *Override) bool {
	if o.Op == opDelete && (c.lib.group(o.Key) || o.Key != "" && c.lib.first(fileName(o.Key), false) != nil) {
		return true
	}
	return (o.value == nil || o.value.kind != dictElem) && c.lib.group(o.Key)
}

func (c *Composer) compose(overrides []*Override, multirun bool, job jobInfo) (*Composed, error) {
	var groups, values []*Override
	var signature strings.Builder
	for _, o := range overrides {
		switch {
		case o.isSweep():
		case c.isGroup(o):
			groups = append(groups, o)
			signature.WriteString(o.Text + "\n")
		default:
			values = append(values, o)
		}
	}
	if multirun {
		signature.WriteString("multirun")
	}
	given := c.req.Schema.kindsGiven(nil, values)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		signature.WriteString(name + " " + given[name].Text + "\n")
	}
	b := c.bases[signature.String()]
	if b == nil {
		var err error
		if b, err = c.base(groups, values, multirun); err != nil {
			return nil, err
		}
		c.bases[signature.String()] = b
	}
	if b.jobs++; b.jobs == 2 && b.schema != nil { // one job alone is not worth it
		c.learn(b)
	}
	ed := &editor{root: b.tree, env: c.env, hydra: c.hydraCheck, own: b.schema}
	found := make([]*Error, len(values))
	for _, known := range []bool{true, false} { // what a wrong key was meant to be may depend on the others' values
		for i, o := range values {
			if (b.schema == nil || o.isHydra() || o.HasPackage || b.schema.find(o.Key) != nil) != known {
				continue
			}
			if err := c.edit(b.schema, ed, o, job.inside); err != nil {
				e, ok := err.(*Error)
				if !ok {
					return nil, err
				}
				found[i] = e
			}
		}
	}
	faults := Errors(list.Filter(found, func(e *Error) bool { return e != nil }))
	if len(faults) > 0 { // the other overrides and the files may be wrong too, but sections are not complete
		out := &Composed{composer: c, tree: ed.root, whole: ed.root, base: b, overrides: overrides, master: true}
		return nil, append(faults, flatten(out.check())...).err()
	}
	tree, err := c.bookkeeping(ed.root, overrides, b, job)
	if err != nil {
		return nil, err
	}
	if c.req.HydraFile != "" {
		if tree, err = savedHydra(tree, c.req.HydraFile); err != nil {
			return nil, err
		}
	}
	out := &Composed{composer: c, tree: tree, whole: tree, base: b, overrides: overrides, master: multirun}
	return out, out.check()
}

// savedHydra returns tree with the hydra node of a file that a run has written.
func savedHydra(tree *Node, file string) (*Node, error) {
	text, err := regular.ReadFile(file)
	if err != nil {
		return nil, err
	}
	saved, err := readYAML(file, text)
	if err != nil {
		return nil, err
	}
	node := saved.Get("hydra")
	if node == nil || node.Kind != Map {
		return nil, errorAt(Origin{Source: file}, "want the hydra node of a run, as .hydra/hydra.yaml has it")
	}
	return tree.set(strKey("hydra"), node), nil
}

// edit applies a value override; with a schema unknown keys are refused by name, also with +. In the
// jobs of a sweep ~key=null is how ~key is printed; elsewhere it deletes a null only.
func (c *Composer) edit(s *Schema, ed *editor, o *Override, sweep bool) error {
	if o.Op == opDelete && sweep && o.value != nil && o.value.node != nil && o.value.node.Kind == Null {
		plain := *o
		plain.value = nil
		o = &plain
	}
	if s != nil && !o.isHydra() && !o.HasPackage {
		switch f := s.find(o.Key); {
		case f == nil:
			return c.hintGroup(o, errorAt(Origin{Source: o.Text}, "%s", s.notFound(o.Key, c.suggest(s, o.Key, ed.root))))
		case o.Op == opDelete && len(f.path) > 0 && !strings.HasSuffix(f.path, ".*") && ed.root.Find(o.Key) != nil:
			return errorAt(Origin{Source: o.Text}, "%s is always there and cannot be deleted: set %s", o.Key, f.instead())
		}
	}
	return c.hintGroup(o, ed.apply(o))
}

// hintGroup adds the nearest config group to the fault of a key that resembles no other key.
func (c *Composer) hintGroup(o *Override, err error) error {
	e, ok := err.(*Error)
	if !ok || strings.Contains(e.Msg, "did you mean") || strings.Contains(o.Key, ".") || o.value == nil || o.value.kind == dictElem {
		return err
	}
	if strings.Contains(e.Msg, "unknown key") || strings.Contains(e.Msg, "Could not override") ||
		strings.Contains(e.Msg, "looks like a config group override") {
		if groups, _, err := c.lib.allGroups(""); err == nil {
			if hint := didYouMean(o.Key, groups); hint != "" {
				return &Error{e.Where, e.Msg + strings.Replace(hint, "mean ", "mean the group ", 1)}
			}
		}
	}
	return err
}

// base merges the contents chosen by group overrides.
func (c *Composer) base(groups, values []*Override, multirun bool) (*base, error) {
	tb := &treeBuilder{lib: c.lib, skipMissing: multirun, overrides: map[string]*choiceOverride{}, deletions: map[string]*deletion{},
		chosen: map[string]*item{}, perGroup: map[string]map[string]bool{}, shorthand: map[string]string{}}
	for _, o := range groups {
		if err := tb.add(o); err != nil {
			return nil, err
		}
	}
	root, err := tb.build(c.req.ConfigName)
	if err != nil {
		return nil, err
	}
	list := tb.flatten(root, nil)
	if err := tb.check(list); err != nil {
		return nil, err
	}
	tree, schema := newMap(), c.req.Schema
	if c.req.Beneath != nil {
		under, err := NewComposer(Request{Library: c.req.Beneath, Schema: schema, Multirun: true, Now: c.req.Now})
		if err != nil {
			return nil, err
		}
		b, err := under.base(nil, nil, true)
		if err != nil {
			return nil, err
		}
		if schema, err = b.schema.with(b.schema.kindsGiven(list, values)); err != nil {
			return nil, err
		}
		tree = b.tree.without("hydra")
	} else if schema != nil {
		if schema, err = schema.with(schema.kindsGiven(list, values)); err != nil {
			return nil, err
		}
		tree = schema.defaults.tree
	}
	for _, item := range list {
		src := item.file.content
		if !item.primary && item.file.name != "hydra/config" {
			if n := src.Find("hydra.searchpath"); n != nil && n.Kind != Null {
				return nil, errorAt(n.Origin, "In '%s': Overriding hydra.searchpath is only supported from the primary config", item.file.name)
			}
		}
		if item.pkg != "" {
			parts := strings.Split(item.pkg, ".")
			for i := len(parts) - 1; i >= 0; i-- {
				src = &Node{Kind: Map, Keys: []Key{strKey(parts[i])}, Vals: []*Node{src}, Origin: item.file.content.Origin}
			}
		}
		if tree, err = c.mergeKeys(tree, src); err != nil {
			return nil, err
		}
	}
	if tree, err = c.fitHydra(tree); err != nil {
		return nil, err
	}
	return &base{schema: schema, tree: tree, choices: tb.choices, list: list, root: root}, nil
}

// mergeKeys lays a config over a tree key by key: a link in the tree, which a mapping is laid over, is
// followed to what the keys before it have made of its target.
func (c *Composer) mergeKeys(tree, src *Node) (*Node, error) {
	for i, v := range src.Vals {
		one := &Node{Kind: Map, Keys: src.Keys[i : i+1], Vals: []*Node{v}, Origin: src.Origin}
		var err error
		if tree, err = merge(tree, one, "", &merger{env: c.env}); err != nil {
			return nil, err
		}
	}
	return tree, nil
}
