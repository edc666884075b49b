package configs

import (
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// Unread returns the keys of the user's own section that nothing in this run takes its value from: no setting that acts, and no
// value of the hydra node.
func (c *Composed) Unread() (unread []Setting) {
	own := c.whole.Get(ownSection)
	if c.base.schema == nil || own == nil || own.Kind != Map || len(own.Keys) == 0 {
		return nil
	}
	read := c.readPaths()
	leaves(own, ownSection, func(key string, n *Node) {
		if !slices.ContainsFunc(read, func(path string) bool { return Covers(path, key) || Covers(key, path) }) {
			unread = append(unread, Setting{Key: key, Where: n.Origin})
		}
	})
	return unread
}

// readPaths returns the places that interpolations outside the user's own section lead to, directly or through others.
func (c *Composed) readPaths() []string {
	paths := slices.Clone(c.links)
	r := c.resolver(c.whole)
	r.visit = func(to *place) { paths = append(paths, to.path()) }
	var follow func(l *place)
	follow = func(l *place) {
		if path := l.path(); path == ownSection || path == "hydra.overrides" || path == "hydra.job.override_dirname" { // as typed
			return
		}
		_, _ = r.value(l) // composing names the faults
		for i, v := range l.node.Vals {
			follow(&place{l, v, l.node.keyAt(i)})
		}
	}
	for i, k := range c.tree.Keys {
		follow(&place{r.root, c.tree.Vals[i], k.Text})
	}
	for _, path := range c.links { // what was dropped, but something that acts is linked to it
		if at, err := r.find(0, splitPath(path), r.root); err == nil && at != nil {
			follow(at)
		}
	}
	return paths
}

// UnreadNote says of keys that nothing reads what a setting that does looks like; "" for none.
func (c *Composed) UnreadNote(unread []Setting) string {
	const most = 3 // named
	if len(unread) == 0 {
		return ""
	}
	named := list.Map(unread[:min(len(unread), most)], func(s Setting) string {
		if s.Where.Line > 0 {
			return s.Key + " (" + s.Where.String() + ")"
		}
		return s.Key
	})
	if more := len(unread) - len(named); more > 0 {
		named = append(named, itoa(more)+" more")
	}
	last := len(named) - 1
	text, it := named[0], "it changes"
	if last > 0 {
		text, it = strings.Join(named[:last], ", ")+" and "+named[last], "they change"
	}
	key := unread[0].Key
	return "no setting reads " + text + ", so " + it + " nothing: " + c.reader(key) + "='${" + key + "}' takes the value"
}

// reader is a setting that a key of the user's own may have been meant to feed, by its name or the end of its name: base_lr means
// a learning rate.
func (c *Composed) reader(key string) string {
	parts := splitPath(key)
	for name, ok := parts[len(parts)-1], c.base.schema != nil; ok; _, name, ok = strings.Cut(name, "_") {
		all := c.base.schema.root.below(func(f *field) bool {
			return f.key == name && len(f.fields) == 0 && !Covers(ownSection, f.path) && c.base.schema.acts(c.job(), f.path)
		})
		if near, ok := registry.Suggest(key[len(ownSection)+1:], all); ok {
			return near
		}
		if len(all) > 0 {
			return all[len(all)-1]
		}
	}
	return "KEY"
}
