package configs

import (
	"strings"

	"fulcrum/internal/registry"
)

// Which option of a group is chosen: by the command line, by an override item, or by the default.

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

// choiceEntry is the option chosen for an override key, and by whom.
type choiceEntry struct {
	key, name string
	origin    Origin
}

// add takes a group override from the command line.
func (b *treeBuilder) add(o *Override) error {
	where := Origin{Source: o.Text}
	if o.Op == opForce {
		return errorAt(where, "force-add of config groups is not supported: '%s'", o.Text)
	}
	v := o.value
	if o.Op == opDelete {
		d := &deletion{text: o.Text}
		switch group := b.lib.group(o.Key); {
		case v == nil || v.isNull():
		case !group:
			return errorAt(where, "the deletion of a config from the defaults list takes no value: want ~%s", o.fullKey())
		case !v.isText():
			return errorAt(where, "config group deletion value must be a string, got %s", v.describe())
		default:
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
	case v.isText():
		it.name = v.node.Text
	case v.kind == listElem:
		it.isList = true
		for _, x := range v.items {
			if !x.isText() {
				return errorAt(where, "config group override must be a string or a list of strings, got a list with %s", x.describe())
			}
			it.options = append(it.options, x.node.Text)
		}
	default:
		return errorAt(where, "config group override must be a string or a list of strings, got %s (to unselect the group use ~%s)",
			v.describe(), o.fullKey())
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
		meant := registry.DidYouMean(key+"="+prev.choice(), prev.appended)
		return errorAt(it.origin, "Multiple values for %s. To override a value use 'override %s: %s'%s", key, key, prev.choice(), meant)
	}
	g := it.groupPath()
	if b.perGroup[g] == nil {
		b.perGroup[g] = map[string]bool{}
	}
	b.perGroup[g][key] = true
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
