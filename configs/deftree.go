package configs

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// The defaults lists of all files, unfolded to a tree and then to the list of contents to merge. The tree is grown from
// the last item to the first: an override is met before the items it may change, which are the earlier ones, and the
// last override in reading order wins. Items that interpolate choices are grown when the rest of the tree stands.

// treeNode is an item with the items of the file it names.
type treeNode struct {
	item     *item
	parent   *treeNode
	children []*treeNode
	file     *configFile
	deferred bool // an interpolated item that waits for the choices of others
	limit    int  // of a deferred item: the overrides met before it
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
	items       int               // expanded so far
	faults      Errors            // choices that are open or absent, as met
}

// maxItems bounds the tree: lists that name the next file twice double it at every level.
const maxItems = 100_000

// rootName stands for what holds hydra/config and the primary config in tables and trees.
const rootName = "<root>"

// everything is the limit of items that all overrides met so far may change.
const everything = int(^uint(0) >> 1)

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
	for grown := true; grown; {
		var err error
		if grown, err = b.growDeferred(root); err != nil {
			return nil, err
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
			keys := list.Map(b.choices, func(e choiceEntry) string { return e.key })
			slices.Sort(keys)
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

// waitsForMissing reports whether an item interpolates a group that is still ???: the jobs of a sweep will choose it.
func (b *treeBuilder) waitsForMissing(it *item) bool {
	return slices.ContainsFunc(groupRef.FindAllString(*it.interpolatedText(), -1), func(ref string) bool {
		chosen := b.chosenFor(ref)
		return chosen != nil && chosen.isMissing()
	})
}

// expand grows the tree below n. Overrides met later than limit do not change what is there: limit
// is everything, except below an interpolated item.
func (b *treeBuilder) expand(n *treeNode, limit int) error {
	it := n.item
	if n.depth() > maxDepth {
		return errorAt(it.origin, "defaults lists nested deeper than %d: %s", maxDepth, n.cycle())
	}
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

// depth counts a node and the configs around it, whenever they were expanded.
func (n *treeNode) depth() (d int) {
	for ; n.parent != nil; n = n.parent {
		d++
	}
	return d
}

// cycle says which configs around a node include one another.
func (n *treeNode) cycle() string {
	var paths []string // from the inside out, the primary config last
	for ; n != nil && n.item != nil; n = n.parent {
		paths = append(paths, n.item.configPath())
	}
	for i, path := range paths {
		if first := slices.Index(paths, path); first < i {
			slices.Reverse(paths[first : i+1])
			text := strings.Join(paths[first:i+1], " includes ")
			if path == paths[len(paths)-1] {
				text += " (with --config-path your file hides the program's of that name; --config-dir adds a folder to it)"
			}
			return text
		}
	}
	return "want fewer"
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
		items = slices.Insert(items, at, self)
	} else if selfAt < 0 && appends { // only overrides: the content stands before what is appended
		items = slices.Insert(items, 0, &item{path: "_self_", self: true})
	}
	if n.item.primary {
		for _, a := range b.appends {
			items = append(items, new(*a))
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
			return errorAt(d.origin, "in '%s': Default List Overrides are not allowed in the subtree of an interpolated config group (override "+
				"%s)", n.item.configPath(), d.describe())
		case d.override:
			last = d
		case last != nil && !d.appended:
			return errorAt(d.origin, "in '%s': override '%s' is defined before '%s': Overrides must be at the end of the defaults list",
				n.item.configPath(), last.describe(), d.describe())
		}
	}
	return nil
}

// children expands items from the last to the first; interpolated ones wait.
func (b *treeBuilder) children(n *treeNode, items []*item, limit int) error {
	var reversed []*treeNode
	for _, d := range slices.Backward(items) {
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
			for _, option := range slices.Backward(d.options) {
				c := &treeNode{item: &item{path: d.group + "/" + option, pkg: d.pkg, hasPkg: d.hasPkg, optional: d.optional,
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
	slices.Reverse(reversed)
	n.children = reversed
	return nil
}

// interpolatedText is the part of an item that may hold ${group}.
func (it *item) interpolatedText() *string {
	if it.isGroup() {
		return &it.name
	}
	return &it.path
}

// groupRef is ${group} in an item of a defaults list.
var groupRef = regexp.MustCompile(`\$\{[^}]*\}`)

// chosenFor is the choice of the group that ${group} names, nil when there is none so far.
func (b *treeBuilder) chosenFor(ref string) *item {
	return b.chosen[strings.TrimSpace(ref[len("${"):len(ref)-len("}")])]
}

// interpolate replaces ${group} in an item by the option chosen for group; false when one is not known.
func (b *treeBuilder) interpolate(it *item) bool {
	text := it.interpolatedText()
	replaced := groupRef.ReplaceAllStringFunc(*text, func(ref string) string {
		if chosen := b.chosenFor(ref); chosen != nil && !chosen.isNull && !chosen.isMissing() {
			return chosen.name
		}
		return ref
	})
	if strings.Contains(replaced, "${") {
		return false
	}
	*text = replaced
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
		return errorf("Cannot find primary config '%s'%s. Check that it's in your config search path:%s", it.configPath(),
			didYouMean(it.configPath(), b.lib.allConfigs()), strings.Join(list.Map(b.lib.sources, func(s *source) string {
				return "\n\tprovider=" + s.provider + ", path=" + s.path
			}), ""))
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
	msg := in + "Could not find '" + it.configPath() + "'" + didYouMean(path.Base(strings.TrimSuffix(it.name, ".yaml")), options)
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
