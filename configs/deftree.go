package configs

import (
	"sort"
	"strings"
)

// The defaults lists of all files, unfolded to a tree and then to the list of contents to merge.
// The tree is grown from the last item to the first: an override is met before the items it may
// change, which are the earlier ones, and the last override in reading order wins. Items that
// interpolate choices are grown when the rest of the tree stands.

// treeNode is an item with the items of the file it names.
type treeNode struct {
	item     *item
	parent   *treeNode
	children []*treeNode
	file     *configFile
	deferred bool // an interpolated item that waits for the choices of others
	limit    int  // of a deferred item: the overrides met before it
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
	at       int             // how many overrides were met before it
	alias    *choiceOverride // of `override group: sub/x`: the same as group/sub: x
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
	deleted     []string // keys of deletions, as typed
	choices     []choiceEntry
	chosen      map[string]*item
	perGroup    map[string]map[string]bool
	shorthand   map[string]string // group: the group/sub that `group: sub/x` stands for
	depth       int
	items       int    // expanded so far
	faults      Errors // choices that are open or absent, as met
}

// maxItems bounds the tree: lists that name the next file twice double it at every level.
const maxItems = 100_000

// rootName stands for what holds hydra/config and the primary config in tables and trees.
const rootName = "<root>"

// everything is the limit of items that all overrides met so far may change.
const everything = int(^uint(0) >> 1)

// choiceEntry is the option chosen for an override key, and by whom.
type choiceEntry struct {
	key, name string
	origin    Origin
}

func newTreeBuilder(lib *library, skipMissing bool) *treeBuilder {
	return &treeBuilder{lib: lib, skipMissing: skipMissing, overrides: map[string]*choiceOverride{},
		deletions: map[string]*deletion{}, chosen: map[string]*item{}, perGroup: map[string]map[string]bool{}, shorthand: map[string]string{}}
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
		switch group := b.lib.group(o.Key); {
		case v != nil && !group:
			return errorAt(where, "the deletion of a config from the defaults list takes no value: want ~%s", o.fullKey())
		case v != nil && !isText:
			return errorAt(where, "config group deletion value must be a string, got %s", v.describe())
		}
		d := &deletion{text: o.Text}
		if v != nil {
			d.name, d.hasName = v.node.Text, true
		}
		if b.deletions[o.fullKey()] == nil {
			b.deleted = append(b.deleted, o.fullKey())
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
	for _, name := range append(it.options, it.name) {
		if fault := checkPath(name); fault != "" {
			return errorAt(where, "%s", fault)
		}
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
	b.overrides[key] = &choiceOverride{item: it, external: o.Text, at: -1}
	return nil
}

// build unfolds the tree below hydra/config and the primary config.
func (b *treeBuilder) build(primary string) (*treeNode, error) {
	root, err := b.grow(primary)
	if len(b.faults) == 0 {
		return root, err
	}
	if e, ok := err.(*Error); ok {
		b.faults = append(b.faults, e)
	}
	return nil, b.faults // the last item first, as Hydra names it
}

func (b *treeBuilder) grow(primary string) (*treeNode, error) {
	root := &treeNode{}
	hydra := &treeNode{item: &item{path: "hydra/config"}, parent: root}
	main := &treeNode{item: &item{path: primary, primary: true}, parent: root}
	root.children = []*treeNode{hydra, main}
	for _, n := range []*treeNode{main, hydra} {
		if err := b.expand(n, everything); err != nil {
			return nil, err
		}
	}
	for {
		grown, err := b.growDeferred(root)
		if err != nil {
			return nil, err
		}
		if !grown {
			break
		}
	}
	if len(b.faults) > 0 { // what could not be loaded might have chosen more
		return root, nil
	}
	return root, b.unresolved(root)
}

// growDeferred expands the first interpolated item whose choices are known. It may bring choices
// that others wait for, so the search starts again afterwards.
func (b *treeBuilder) growDeferred(n *treeNode) (bool, error) {
	for _, c := range n.children {
		if c.deferred {
			if !b.interpolate(c.item) {
				continue
			}
			for _, text := range []string{c.item.path, c.item.name} {
				if fault := checkPath(text); fault != "" {
					return false, errorAt(c.item.origin, "%s", fault)
				}
			}
			c.deferred = false
			return true, b.expand(c, c.limit)
		}
		if grown, err := b.growDeferred(c); grown || err != nil {
			return grown, err
		}
	}
	return false, nil
}

// unresolved reports interpolated items whose choices never came.
func (b *treeBuilder) unresolved(n *treeNode) error {
	for _, c := range n.children {
		if c.deferred {
			if b.skipMissing && b.waitsForMissing(c.item) {
				c.item.deleted = true
				continue
			}
			keys := make([]string, len(b.choices))
			for i, e := range b.choices {
				keys[i] = e.key
			}
			sort.Strings(keys)
			text := c.item.interpolatedText()
			_, key, _ := strings.Cut(*text, "${")
			key, _, _ = strings.Cut(key, "}")
			return errorAt(c.item.origin, "Error resolving interpolation '%s' in a defaults list%s, possible interpolation keys: %s",
				*text, didYouMean(strings.TrimSpace(key), keys), strings.Join(keys, ", "))
		}
		if err := b.unresolved(c); err != nil {
			return err
		}
	}
	return nil
}

// waitsForMissing reports whether an item interpolates a group that is still ???: the jobs of a
// sweep will choose it.
func (b *treeBuilder) waitsForMissing(it *item) bool {
	for rest := *it.interpolatedText(); ; {
		_, after, found := strings.Cut(rest, "${")
		if !found {
			return false
		}
		key, tail, _ := strings.Cut(after, "}")
		if chosen := b.chosen[strings.TrimSpace(key)]; chosen != nil && chosen.isMissing() {
			return true
		}
		rest = tail
	}
}

// expand grows the tree below n. Overrides met later than limit do not change what is there: limit
// is everything, except below an interpolated item.
func (b *treeBuilder) expand(n *treeNode, limit int) error {
	it := n.item
	if b.depth++; b.depth > maxDepth {
		return errorAt(it.origin, "defaults lists nested deeper than %d: does '%s' include itself?", maxDepth, it.configPath())
	}
	defer func() { b.depth-- }()
	if b.items++; b.items > maxItems {
		return errorAt(it.origin, "the defaults lists unfold to more than %d items", maxItems)
	}
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
		if it.shortGroup != "" {
			b.shorthand[it.absolute(it.shortGroup)] = key
		}
	} else if d := b.deletions[it.configPath()]; d != nil && !d.hasName && !it.primary {
		it.deleted, d.used = true, true
		return nil
	}
	if it.isNull {
		return nil
	}
	if it.isMissing() {
		if b.skipMissing {
			return nil
		}
		return b.fault(b.mustSpecify(it))
	}
	if f == nil {
		if it.optional {
			it.deleted = true
			return nil
		}
		return b.fault(b.notFound(n))
	}
	n.file = f
	items, err := b.itemsOf(n)
	if err != nil {
		return err
	}
	if err := b.place(n, items, limit); err != nil {
		return err
	}
	return b.children(n, items, limit)
}

// fault keeps the fault of a choice, so that those of the other choices are reported with it.
func (b *treeBuilder) fault(err error) error {
	e, ok := err.(*Error)
	if !ok || e.Where.Source == "" { // the primary config, or a folder that cannot be read
		return err
	}
	b.faults = append(b.faults, e)
	return nil
}

// choose records the option of a group and refuses a second, different one.
func (b *treeBuilder) choose(key string, it *item) error {
	if prev := b.chosen[key]; prev == nil {
		b.chosen[key] = it
		name := it.name
		if it.isNull {
			name = "null"
		}
		b.choices = append(b.choices, choiceEntry{key, name, it.origin})
	} else if prev.name != it.name || prev.isNull != it.isNull {
		return errorAt(it.origin, "Multiple values for %s. To override a value use 'override %s: %s'", key, key, prev.choice())
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
	} else if selfAt < 0 && appends { // only overrides: the content stands before what is appended
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

// place tells the items of a file where they are, and refuses overrides where they may not be.
func (b *treeBuilder) place(n *treeNode, items []*item, limit int) error {
	var last *item
	dir, pkg := n.item.groupPath(), n.item.finalPackage(true)
	for _, d := range items {
		if d.self {
			continue
		}
		d.baseDir, d.parentPkg = dir, pkg
		switch {
		case d.override && limit != everything:
			return errorAt(d.origin, "in '%s': Default List Overrides are not allowed in the subtree of an interpolated config group (override %s)", n.item.configPath(), d.describe())
		case d.override:
			last = d
		case last != nil && !d.appended:
			return errorAt(d.origin, "in '%s': override '%s' is defined before '%s': Overrides must be at the end of the defaults list",
				n.item.configPath(), last.describe(), d.describe())
		}
	}
	return nil
}

// noteOverride registers an override item. Of several with one key the first met counts: the last
// in reading order, or the command line's.
func (b *treeBuilder) noteOverride(n *treeNode, d *item) {
	key := d.overrideKey()
	if b.overrides[key] != nil {
		return
	}
	o := &choiceOverride{item: d, parent: n.item.configPath(), at: len(b.order)}
	b.overrides[key] = o
	b.order = append(b.order, key)
	if d.shortGroup == "" {
		return
	}
	long := *d // `override group: sub/x` also replaces an option of group, as before Hydra 1.4
	long.group, long.shortGroup = d.shortGroup, ""
	long.name = strings.TrimPrefix(d.group, d.shortGroup+"/") + "/" + d.name
	if key := long.overrideKey(); b.overrides[key] == nil {
		b.overrides[key] = &choiceOverride{item: &long, parent: o.parent, at: o.at, alias: o}
	}
}

// choiceFor applies the override of a group item.
func (b *treeBuilder) choiceFor(d *item, limit int) {
	o := b.overrides[d.overrideKey()]
	if o == nil || o.at >= limit {
		return
	}
	d.name, d.options, d.isList, d.isNull = o.item.name, o.item.options, o.item.isList, o.item.isNull
	d.origin = o.item.origin
	o.used = true
	if o.alias != nil {
		o.alias.used = true
	}
}

// children expands items from the last to the first; interpolated ones wait.
func (b *treeBuilder) children(n *treeNode, items []*item, limit int) error {
	var reversed []*treeNode
	for i := len(items) - 1; i >= 0; i-- {
		d := items[i]
		if d.self {
			reversed = append(reversed, &treeNode{item: d, parent: n})
			continue
		}
		if d.override {
			b.noteOverride(n, d)
			continue
		}
		if d.isGroup() {
			b.choiceFor(d, limit)
		}
		if d.isList {
			for j := len(d.options) - 1; j >= 0; j-- {
				c := &treeNode{item: &item{path: d.group + "/" + d.options[j], pkg: d.pkg, hasPkg: d.hasPkg, optional: d.optional,
					origin: d.origin, baseDir: d.baseDir, parentPkg: d.parentPkg}, parent: n}
				if d.appended {
					c.item.path, c.item.baseDir, c.item.parentPkg = "/"+strings.TrimPrefix(c.item.path, "/"), "", ""
				}
				if err := b.expand(c, limit); err != nil {
					return err
				}
				reversed = append(reversed, c)
			}
			continue
		}
		c := &treeNode{item: d, parent: n}
		reversed = append(reversed, c)
		if d.interpolated() {
			c.deferred, c.limit = true, min(limit, len(b.order))
			continue
		}
		if err := b.expand(c, limit); err != nil {
			return err
		}
	}
	for i := len(reversed) - 1; i >= 0; i-- {
		n.children = append(n.children, reversed[i])
	}
	return nil
}

// interpolatedText is the part of an item that may hold ${group}.
func (it *item) interpolatedText() *string {
	if it.isGroup() {
		return &it.name
	}
	return &it.path
}

// interpolate replaces ${group} in an item by the option chosen for group; false when one is not known.
func (b *treeBuilder) interpolate(it *item) bool {
	text := it.interpolatedText()
	var out strings.Builder
	for rest := *text; ; {
		before, after, found := strings.Cut(rest, "${")
		out.WriteString(before)
		if !found {
			break
		}
		key, tail, closed := strings.Cut(after, "}")
		chosen := b.chosen[strings.TrimSpace(key)]
		if !closed || chosen == nil || chosen.isNull || chosen.isMissing() {
			return false
		}
		out.WriteString(chosen.name)
		rest = tail
	}
	*text = out.String()
	return true
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
		return errorf("Cannot find primary config '%s'%s. Check that it's in your config search path:%s", it.configPath(), didYouMean(it.configPath(), b.lib.allConfigs()), b.searchPath())
	}
	if !it.isGroup() {
		dir, _ := splitDir(it.configPath())
		if _, err := b.lib.list(dir, false); err != nil {
			return err
		}
		return errorAt(where, "%sCould not load '%s'%s", in, it.configPath(), didYouMean(it.configPath(), b.lib.allConfigs()))
	}
	options, err := b.lib.list(it.groupPath(), false)
	if err != nil {
		return err
	}
	msg := in + "Could not find '" + it.configPath() + "'" + didYouMean(it.name, options)
	if !b.lib.group(it.groupPath()) {
		if groups, _, err := b.lib.allGroups(""); err == nil {
			msg += ": there is no group '" + it.groupPath() + "'" + didYouMean(it.groupPath(), groups)
		}
	}
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
	switch {
	case owner.parent == nil:
	case owner.parent.item == nil:
		c.parent = rootName
	default:
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
		if o.external == "" {
			msg = "In '" + o.parent + "': " + msg + " Invalid Defaults List override '" + o.item.typed() +
				"': No earlier Group Default for '" + key + "' exists to override."
		}
		switch short := b.shorthand[group]; {
		case len(known) > 1:
			msg += " Did you mean to override one of " + strings.Join(known, ", ") + "?"
		case len(known) == 1 && known[0] != key:
			msg += " Did you mean to override " + known[0] + "?"
		case short != "":
			msg += " No match in the defaults list. The item " + group + ": " + strings.TrimPrefix(short, group+"/") +
				"/… stands for the group " + short + ": did you mean to override " + short + "?"
		case o.external != "":
			msg += " No match in the defaults list." + didYouMean(group, b.groupNames())
		}
		if o.external != "" {
			msg += " To append to your default list use +" + o.external
		}
		faults = append(faults, errorAt(o.item.origin, "%s", msg))
	}
	for _, key := range b.deleted {
		if d := b.deletions[key]; !d.used {
			desc := key
			if d.hasName {
				desc += "=" + d.name
			}
			faults = append(faults, errorAt(Origin{Source: d.text}, "Could not delete '%s'. No match in the defaults list", desc))
		}
	}
	return faults.err()
}

// groupNames lists the groups of the defaults list.
func (b *treeBuilder) groupNames() []string {
	var out []string
	for g := range b.perGroup {
		out = append(out, g)
	}
	sort.Strings(out)
	return out
}
