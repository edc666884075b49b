package configs

import "strings"

// editor applies value overrides to a composed tree, which is in struct mode: absent keys cannot be set without +.
type editor struct {
	root  *Node
	env   *environment
	hydra *Schema // of Hydra's own node
	own   *Schema // of all else; nil: none
}

func (ed *editor) apply(o *Override) error {
	where := Origin{Source: o.Text}
	if o.HasPackage {
		return errorAt(where, "Override %s looks like a config group override, but config group '%s' does not exist", o.Text, o.Key)
	}
	path := strings.Split(o.Key, ".")
	if o.Op == opDelete {
		return ed.delete(o, path)
	}
	v := o.value.toNode().at(where)
	if o.Op == opAdd {
		old, err := ed.lookup(path)
		if err != nil {
			return errorAt(where, "Error merging override: %v", err)
		}
		if old != nil && old.Kind != Null && !old.isMissing() && !v.container() {
			return errorAt(where, "Could not append to config. An item is already at '%s'. Either remove the + prefix: '%s', or add a second + "+
				"to add or override '%s': '+%s'",
				o.Key, o.Text[1:], o.Key, o.Text)
		}
	}
	force := o.Op != opChange || ed.open(path) || ed.open(path[:len(path)-1])
	path, err := ed.canonical(path, o.value.kind == extendElem)
	if err != nil {
		return errorAt(where, "Error merging override: %v", err)
	}
	root, err := ed.set(ed.root, path, nil, v, force, o)
	if err != nil {
		return err
	}
	ed.root = root
	return nil
}

// open reports whether the schema has a map of any keys at path: it is no struct, whose keys + alone could make. The user's own section is
// one, as every mapping of YAML in Hydra.
func (ed *editor) open(path []string) bool {
	if ed.own == nil || len(path) == 0 {
		return false
	}
	f := ed.own.find(joinPath(path))
	return f != nil && f.kind == Map && f.elem != nil && f.elem.kind != Null
}

// lookup resolves the value at path; nil when absent.
func (ed *editor) lookup(path []string) (*Node, error) {
	if n := ed.root.findPath(path); n != nil && n.tmpl == nil && !n.container() {
		return n, nil
	}
	r := newResolver(ed.root, ed.env)
	at, err := r.find(0, path, r.root)
	if m, miss := err.(*missingError); miss && m.ahead {
		return nil, nil
	}
	if err != nil || at == nil {
		return nil, err
	}
	return at.node, nil
}

// canonical follows node interpolations along a path, so that an edit through a link changes its
// target. The last part is followed only where a list is extended: setting a link replaces it.
func (ed *editor) canonical(path []string, last bool) ([]string, error) {
	out := []string{}
	n := ed.root
	hops := 0
	for i, part := range path {
		out = append(out, part)
		if n != nil {
			n = n.child(part)
		}
		if n == nil || n.tmpl == nil || i == len(path)-1 && !last {
			continue
		}
		if hops++; hops > maxDepth {
			return nil, errorf("too many links along %s", strings.Join(path, "."))
		}
		r := newResolver(ed.root, ed.env)
		at, err := r.find(0, out, r.root)
		if err != nil {
			return nil, err
		}
		if at == nil || !at.node.container() {
			continue
		}
		var target []string
		for l := at; l.up != nil; l = l.up {
			target = append([]string{l.key}, target...)
		}
		if found := ed.root.findPath(target); found == at.node {
			out, n = target, found
		}
	}
	return out, nil
}

// set returns a copy of n with v at path; done is the path so far.
func (ed *editor) set(n *Node, path, done []string, v *Node, force bool, o *Override) (*Node, error) {
	part, rest := path[0], path[1:]
	i := n.locate(part)
	switch {
	case i < 0 && n.Kind == List:
		return nil, errorAt(Origin{Source: o.Text}, "Error merging override: %s has no item %s: list index out of range, it has %d items "+
			"counted from 0", joinPath(done), part, len(n.Vals))
	case i < 0 && !force:
		return nil, ed.absent(o, joinPath(append(done, part)), n)
	}
	var old *Node
	if i >= 0 {
		old = n.Vals[i]
	}
	child, err := ed.setChild(old, part, rest, done, v, force, o)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return n.set(strKey(part), child), nil
	}
	return n.with(i, child), nil
}

func (ed *editor) setChild(old *Node, part string, rest, done []string, v *Node, force bool, o *Override) (*Node, error) {
	done = append(done[:len(done):len(done)], part)
	if len(rest) > 0 {
		if old == nil || !old.container() {
			old = (&Node{Kind: Map, Origin: v.Origin}).over(old)
		}
		return ed.set(old, rest, done, v, force, o)
	}
	if o.value.kind == extendElem {
		if old == nil {
			old = newNull()
		}
		if old.Kind != List {
			return nil, errorAt(v.Origin, "Could not append to config list. The existing value of '%s' is %s which is not a list.", o.Key,
				old.pyStr())
		}
		c := old.over(old)
		c.Origin = v.Origin
		c.Vals = append(old.Vals[:len(old.Vals):len(old.Vals)], v.Vals...)
		return c, nil
	}
	if old == nil || !old.container() || !v.container() {
		return v.over(old), nil
	}
	if old.Kind != v.Kind {
		return nil, errorAt(v.Origin, "Error merging override: Cannot merge incompatible container types: %s is %s, the override has %s",
			joinPath(done), old.Kind, v.Kind)
	}
	m := &merger{env: ed.env, above: framesTo(ed.root, done)}
	if !force {
		m.absent = func(path string, in *Node) error { return ed.absent(o, path, in) }
	}
	return merge(old, v, joinPath(done), m)
}

// absent is the error, in OmegaConf's words, for a key that struct mode does not let an override make: the key itself, and
// the class of Hydra's node or the section that lacks it.
func (ed *editor) absent(o *Override, path string, in *Node) error {
	parent, last, where := "", path, "is not in struct"
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, last = path[:i], path[i+1:]
		where += " '" + parent + "'"
	}
	if inHydra, ok := strings.CutPrefix(parent+".", "hydra."); ok {
		if f := ed.hydra.find(strings.TrimSuffix(inHydra, ".")); f != nil && f.fields != nil {
			where = "not in '" + f.typ.Name() + "'"
		}
	}
	hint := strings.Replace(didYouMean(last, in.names()), "mean ", "mean "+strings.TrimPrefix(parent+".", "."), 1)
	return errorAt(Origin{Source: o.Text}, "Could not override '%s': Key '%s' %s%s. To append to your config use +%s", o.Key, last, where,
		hint, o.Text)
}

func (ed *editor) delete(o *Override, path []string) error {
	where := Origin{Source: o.Text}
	if o.value != nil && (o.value.isSweep() || o.value.kind == extendElem) {
		return errorAt(where, "a sweep cannot be deleted: want ~key or ~key=value")
	}
	gone := errorAt(where, "Could not delete from config. '%s' does not exist.", o.Key)
	failed := func(err error) error { // a path through something that holds no such key is an absent one
		if _, index := err.(*indexError); index {
			return gone
		}
		return errorAt(where, "Error merging override: %v", err)
	}
	parent, err := ed.canonical(path[:len(path)-1], true)
	if err != nil {
		return failed(err)
	}
	full := append(parent, path[len(path)-1])
	if ed.root.findPath(full) == nil {
		if in := ed.root.findPath(parent); in != nil && in.Kind == Map {
			gone.Msg += didYouMean(path[len(path)-1], in.names())
		}
		return gone
	}
	r := newResolver(ed.root, ed.env) // also without a value: a broken link cannot be deleted
	at, err := r.find(0, full, r.root)
	if err != nil {
		return failed(err)
	}
	if at == nil {
		return gone
	}
	if o.value != nil {
		cur, err := r.expand(at)
		if err != nil {
			return errorAt(where, "%v", err)
		}
		if want := o.value.toNode(); !cur.equal(want) {
			return errorAt(where, "Could not delete from config. The value of '%s' is %s and not %s.", o.Key, cur.pyStr(), want.pyStr())
		}
	}
	ed.root = deleteAt(ed.root, full)
	return nil
}

func deleteAt(n *Node, path []string) *Node {
	i := n.locate(path[0])
	if len(path) == 1 {
		return n.remove(i)
	}
	return n.with(i, deleteAt(n.Vals[i], path[1:]))
}
