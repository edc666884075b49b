package configs

import (
	"maps"
	"slices"
	"strings"
)

// The defaults list: the tree of files flattened in the order in which they are merged.

// content is one entry of the final list: what to merge, and where.
type content struct {
	file    *configFile
	pkg     string
	self    bool
	key     string // override key of a group choice
	parent  string // config path of the file that asked for it
	primary bool
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
		known := slices.Sorted(maps.Keys(b.perGroup[group]))
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
			msg += " No match in the defaults list." + didYouMean(group, slices.Collect(maps.Keys(b.perGroup)))
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
