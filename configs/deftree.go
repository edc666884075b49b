package configs

import (
	"sort"
	"strings"
)

// The defaults lists of all files, unfolded to a tree and then to the list of contents to merge.
// The tree is walked from the last item to the first, so that an override is known before the item
// it changes, and the last override in reading order wins.

// treeNode is an item with the items of the file it names.
type treeNode struct {
	item     *item
	parent   *treeNode
	children []*treeNode
	file     *configFile
}

// content is one entry of the final list: what to merge, and where.
type content struct {
	file    *configFile
	pkg     string
	self    bool
	key     string // override key of a group choice
	parent  string // config path of the file that asked for it
	primary bool
}

// choiceOverride is a selection from the command line or an `override` item.
type choiceOverride struct {
	item     *item // carries name, options, isList, isNull
	external string
	parent   string // config path of the file with the override item
	used     bool
}

type deletion struct {
	name    string // "" = whatever is selected
	text    string
	used    bool
	hasName bool
}

type treeBuilder struct {
	lib         *library
	skipMissing bool
	overrides   map[string]*choiceOverride
	order       []string // of overrides, for reports
	appends     []*item
	deletions   map[string]*deletion
	choices     []choiceEntry
	chosen      map[string]*item
	perGroup    map[string]map[string]bool
	depth       int
}

type choiceEntry struct{ key, name string }

func newTreeBuilder(lib *library, skipMissing bool) *treeBuilder {
	return &treeBuilder{lib: lib, skipMissing: skipMissing, overrides: map[string]*choiceOverride{},
		deletions: map[string]*deletion{}, chosen: map[string]*item{}, perGroup: map[string]map[string]bool{}}
}

// add takes a group override from the command line.
func (b *treeBuilder) add(o *Override) error {
	where := Origin{Source: o.Text}
	if o.Op == opForce {
		return errorAt(where, "force-add of config groups is not supported: '%s'", o.Text)
	}
	v := o.value
	isText := v != nil && v.kind == scalarElem && v.node.Kind == String
	if o.Op == opDelete {
		if v != nil && v.node != nil && v.node.Kind == Null {
			v = nil
		}
		if v != nil && !isText {
			return errorAt(where, "config group deletion value must be a string, got %s", v.describe())
		}
		d := &deletion{text: o.Text}
		if v != nil {
			d.name, d.hasName = v.node.Text, true
		}
		b.deletions[o.fullKey()] = d
		return nil
	}
	it := &item{origin: where, group: o.Key, pkg: o.Package, hasPkg: o.HasPackage}
	switch {
	case isText:
		it.name = v.node.Text
	case v.kind == listElem:
		it.isList = true
		for _, x := range v.items {
			if x.kind != scalarElem || x.node.Kind != String {
				return errorAt(where, "config group override must be a string or a list of strings, got a list with %s", x.describe())
			}
			it.options = append(it.options, x.node.Text)
		}
	default:
		return errorAt(where, "config group override must be a string or a list of strings, got %s (to unselect the group use ~%s)", v.describe(), o.fullKey())
	}
	if o.Op == opAdd {
		it.appended = true
		b.appends = append(b.appends, it)
		return nil
	}
	key := o.fullKey()
	if b.overrides[key] == nil {
		b.order = append(b.order, key)
	}
	b.overrides[key] = &choiceOverride{item: it, external: o.Text}
	return nil
}

// build unfolds the tree below hydra/config and the primary config.
func (b *treeBuilder) build(primary string) (*treeNode, error) {
	root := &treeNode{}
	hydra := &treeNode{item: &item{path: "hydra/config"}, parent: root}
	main := &treeNode{item: &item{path: primary, primary: true}, parent: root}
	root.children = []*treeNode{hydra, main}
	for _, n := range []*treeNode{main, hydra} {
		if err := b.expand(n, false); err != nil {
			return nil, err
		}
	}
	return root, nil
}

func (b *treeBuilder) expand(n *treeNode, interpolated bool) error {
	it := n.item
	if b.depth++; b.depth > maxDepth {
		return errorAt(it.origin, "defaults lists nested deeper than %d: does '%s' include itself?", maxDepth, it.configPath())
	}
	defer func() { b.depth-- }()
	var f *configFile
	if !it.isNull && !it.isMissing() {
		var err error
		if f, err = b.lib.load(it.configPath()); err != nil {
			return err
		}
		it.setHeader(f)
	}
	if it.isGroup() {
		key := it.overrideKey()
		if d := b.deletions[key]; d != nil && (!d.hasName || d.name == it.name) {
			it.deleted, d.used = true, true
			return nil
		}
		if err := b.choose(key, it); err != nil {
			return err
		}
	}
	if it.isNull {
		return nil
	}
	if it.isMissing() {
		if b.skipMissing {
			return nil
		}
		return b.mustSpecify(it)
	}
	if f == nil {
		if it.optional {
			it.deleted = true
			return nil
		}
		return b.notFound(n)
	}
	n.file = f
	items, err := b.itemsOf(n)
	if err != nil {
		return err
	}
	if err := b.noteOverrides(n, items, interpolated); err != nil {
		return err
	}
	return b.children(n, items, interpolated)
}

// choose records the option of a group and refuses a second, different one.
func (b *treeBuilder) choose(key string, it *item) error {
	if prev := b.chosen[key]; prev == nil {
		b.chosen[key] = it
		name := it.name
		if it.isNull {
			name = "null"
		}
		b.choices = append(b.choices, choiceEntry{key, name})
	} else if prev.name != it.name || prev.isNull != it.isNull {
		return errorAt(it.origin, "Multiple values for %s. To override a value use 'override %s: %s'", key, key, prev.name)
	}
	g := it.groupPath()
	if b.perGroup[g] == nil {
		b.perGroup[g] = map[string]bool{}
	}
	b.perGroup[g][key] = true
	return nil
}

// itemsOf copies the defaults of n's file (items are changed while the tree grows) and places _self_.
func (b *treeBuilder) itemsOf(n *treeNode) ([]*item, error) {
	var items []*item
	selfAt, plain := -1, false
	for i, d := range n.file.defaults {
		c := *d
		items = append(items, &c)
		if c.self {
			if selfAt >= 0 {
				return nil, errorAt(c.origin, "Duplicate _self_ defined in %s", n.item.configPath())
			}
			selfAt = i
		}
		plain = plain || !c.override
	}
	appends := n.item.primary && len(b.appends) > 0
	if selfAt < 0 && (plain || len(items) == 0 && appends) {
		self := &item{path: "_self_", self: true}
		at := len(items)
		for at > 0 && items[at-1].override { // overrides stay last
			at--
		}
		items = append(items[:at], append([]*item{self}, items[at:]...)...)
	} else if selfAt < 0 && len(items) > 0 {
		items = append([]*item{{path: "_self_", self: true}}, items...)
	}
	if n.item.primary {
		for _, a := range b.appends {
			c := *a
			items = append(items, &c)
		}
	}
	return items, nil
}

// noteOverrides registers the override items of a file, before its plain items are looked at.
func (b *treeBuilder) noteOverrides(n *treeNode, items []*item, interpolated bool) error {
	var last *item
	dir, pkg := n.item.groupPath(), n.item.finalPackage(true)
	for _, d := range items {
		if d.self {
			continue
		}
		d.baseDir, d.parentPkg = dir, pkg
		if !d.override && !d.appended && strings.HasPrefix(d.group, "hydra/") {
			return errorAt(d.origin, "in '%s': changing %s needs the keyword: override %s", n.item.configPath(), d.group, d.describe())
		}
		if last != nil && !d.override && !d.appended {
			return errorAt(d.origin, "in '%s': override '%s' is defined before '%s': overrides must be at the end of the defaults list",
				n.item.configPath(), last.describe(), d.describe())
		}
		if !d.override {
			continue
		}
		last = d
		if interpolated {
			return errorAt(d.origin, "in '%s': overrides are not allowed below an interpolated choice (override %s)", n.item.configPath(), d.describe())
		}
		key := d.overrideKey()
		if b.overrides[key] == nil {
			b.overrides[key] = &choiceOverride{item: d, parent: n.item.configPath()}
			b.order = append(b.order, key)
		}
	}
	return nil
}

// children expands items from the last to the first; interpolated ones wait for the choices of the others.
func (b *treeBuilder) children(n *treeNode, items []*item, interpolated bool) error {
	var reversed []*treeNode
	var waiting []*treeNode
	for i := len(items) - 1; i >= 0; i-- {
		d := items[i]
		if d.self {
			reversed = append(reversed, &treeNode{item: d, parent: n})
			continue
		}
		if d.override {
			continue
		}
		if d.isGroup() {
			if o := b.overrides[d.overrideKey()]; o != nil {
				d.name, d.options, d.isList, d.isNull = o.item.name, o.item.options, o.item.isList, o.item.isNull
				d.origin = o.item.origin
				o.used = true
			}
		}
		if d.isList {
			for j := len(d.options) - 1; j >= 0; j-- {
				c := &treeNode{item: &item{path: d.group + "/" + d.options[j], pkg: d.pkg, hasPkg: d.hasPkg, optional: d.optional,
					origin: d.origin, baseDir: d.baseDir, parentPkg: d.parentPkg}, parent: n}
				if d.appended {
					c.item.path, c.item.baseDir, c.item.parentPkg = "/"+strings.TrimPrefix(c.item.path, "/"), "", ""
				}
				if err := b.expand(c, interpolated); err != nil {
					return err
				}
				reversed = append(reversed, c)
			}
			continue
		}
		c := &treeNode{item: d, parent: n}
		reversed = append(reversed, c)
		if d.interpolated() {
			waiting = append(waiting, c)
			continue
		}
		if err := b.expand(c, interpolated); err != nil {
			return err
		}
	}
	for _, c := range waiting {
		if err := b.interpolate(c.item); err != nil {
			return err
		}
		if err := b.expand(c, true); err != nil {
			return err
		}
	}
	if len(reversed) == 1 && reversed[0].item.self {
		return nil // only its own content
	}
	for i := len(reversed) - 1; i >= 0; i-- {
		n.children = append(n.children, reversed[i])
	}
	return nil
}

// interpolate replaces ${group} in an item by the option chosen for group.
func (b *treeBuilder) interpolate(it *item) error {
	text := &it.path
	if it.isGroup() {
		text = &it.name
	}
	whole := *text
	var out strings.Builder
	for rest := whole; ; {
		before, after, found := strings.Cut(rest, "${")
		out.WriteString(before)
		if !found {
			break
		}
		key, tail, closed := strings.Cut(after, "}")
		chosen := b.chosen[strings.TrimSpace(key)]
		if !closed || chosen == nil || chosen.isNull {
			keys := make([]string, len(b.choices))
			for i, c := range b.choices {
				keys[i] = c.key
			}
			sort.Strings(keys)
			return errorAt(it.origin, "cannot resolve '%s' in a defaults list%s: possible keys are %s", whole, didYouMean(key, keys), strings.Join(keys, ", "))
		}
		out.WriteString(chosen.name)
		rest = tail
	}
	*text = out.String()
	return nil
}

func (b *treeBuilder) mustSpecify(it *item) error {
	options, err := b.lib.list(it.groupPath(), false)
	if err != nil {
		return err
	}
	key := it.overrideKey()
	return errorAt(it.origin, "You must specify '%s', e.g, %s=<OPTION>. Available options: %s", key, key, strings.Join(options, ", "))
}

func (b *treeBuilder) notFound(n *treeNode) error {
	it := n.item
	where, in := it.origin, ""
	if n.parent != nil && n.parent.item != nil {
		in = "In '" + n.parent.item.configPath() + "': "
	}
	if it.primary {
		return errorf("Cannot find primary config '%s'. Check that it's in your config search path:%s", it.configPath(), b.searchPath())
	}
	if !it.isGroup() {
		dir, base := splitDir(it.configPath())
		options, err := b.lib.list(dir, false)
		if err != nil {
			return err
		}
		return errorAt(where, "%sCould not load '%s'%s", in, it.configPath(), didYouMean(base, options))
	}
	options, err := b.lib.list(it.groupPath(), false)
	if err != nil {
		return err
	}
	msg := in + "Could not find '" + it.configPath() + "'" + didYouMean(it.name, options)
	if len(options) > 0 {
		msg += ". Available options in '" + it.groupPath() + "': " + strings.Join(options, ", ")
	}
	return errorAt(where, "%s", msg)
}

func (b *treeBuilder) searchPath() string {
	var out strings.Builder
	for _, s := range b.lib.sources {
		out.WriteString("\n\tprovider=" + s.provider + ", path=" + s.path)
	}
	return out.String()
}

// flatten lists the contents in merge order.
func (b *treeBuilder) flatten(n *treeNode, out []content) []content {
	if n.item != nil && n.item.deleted {
		return out
	}
	if len(n.children) > 0 {
		for _, c := range n.children {
			out = b.flatten(c, out)
		}
		return out
	}
	if n.item == nil {
		return out
	}
	owner := n
	if n.item.self {
		owner = n.parent
	}
	if owner.file == nil {
		return out
	}
	c := content{file: owner.file, pkg: owner.item.finalPackage(true), self: n.item.self, primary: owner.item.primary}
	if owner.parent != nil && owner.parent.item != nil {
		c.parent = owner.parent.item.configPath()
	}
	if !n.item.self && n.item.isGroup() {
		c.key = n.item.overrideKey()
	}
	return append(out, c)
}

// check reports overrides and deletions that met no item, and choices listed twice.
func (b *treeBuilder) check(list []content) error {
	seen := map[string]bool{}
	for _, c := range list {
		if c.key == "" {
			continue
		}
		if seen[c.key] {
			return errorf("%s appears more than once in the final defaults list", c.key)
		}
		seen[c.key] = true
	}
	var faults Errors
	for _, key := range b.order {
		o := b.overrides[key]
		if o.used {
			continue
		}
		group, _, _ := strings.Cut(key, "@")
		var known []string
		for k := range b.perGroup[group] {
			known = append(known, k)
		}
		sort.Strings(known)
		msg := "Could not override '" + key + "'."
		switch {
		case len(known) > 1:
			msg += " Did you mean to override one of " + strings.Join(known, ", ") + "?"
		case len(known) == 1:
			msg += " Did you mean to override " + known[0] + "?"
		default:
			msg += " No match in the defaults list."
		}
		if o.parent != "" {
			msg = "In '" + o.parent + "': " + msg
		} else {
			msg += " To append to your default list use +" + o.external
		}
		faults = append(faults, errorAt(o.item.origin, "%s", msg))
	}
	for key, d := range b.deletions {
		if !d.used {
			desc := key
			if d.hasName {
				desc += "=" + d.name
			}
			faults = append(faults, errorAt(Origin{Source: d.text}, "Could not delete '%s'. No match in the defaults list", desc))
		}
	}
	return faults.err()
}
