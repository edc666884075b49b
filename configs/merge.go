package configs

// merge lays src over dst: mappings merge key by key, everything else replaces. A mapping and a
// list do not mix. deref gives the container an interpolation points at, or nil.
func merge(dst, src *Node, path string, deref func(*Node) *Node) (*Node, error) {
	if dst == nil {
		return src, nil
	}
	if src.isMissing() && dst.Origin.Source != "default" { // ??? never hides a value, except a schema's default
		return dst, nil
	}
	if dst.tmpl != nil && src.container() {
		if target := deref(dst); target != nil {
			dst = target
		}
	}
	if dst.container() && src.container() && dst.Kind != src.Kind {
		return nil, errorAt(src.Origin, "%sCannot merge incompatible container types: %s into %s set at %s", keyPrefix(path), src.Kind, dst.Kind, dst.Origin)
	}
	if dst.Kind != Map || src.Kind != Map {
		return src.over(dst), nil
	}
	out := &Node{Kind: Map, Keys: dst.Keys, Vals: append(make([]*Node, 0, len(dst.Vals)+len(src.Vals)), dst.Vals...), Origin: dst.Origin, Over: dst.Over}
	shared := true
	for i, k := range src.Keys {
		j := dst.index(k)
		if j < 0 {
			if shared {
				out.Keys = append(make([]Key, 0, len(dst.Keys)+len(src.Keys)), dst.Keys...)
				shared = false
			}
			out.Keys, out.Vals = append(out.Keys, k), append(out.Vals, src.Vals[i])
			continue
		}
		sub := k.Text
		if path != "" {
			sub = path + "." + k.Text
		}
		v, err := merge(dst.Vals[j], src.Vals[i], sub, deref)
		if err != nil {
			return nil, err
		}
		out.Vals[j] = v
	}
	return out, nil
}

// over returns n remembering what it replaced.
func (n *Node) over(old *Node) *Node {
	if old == nil {
		return n
	}
	c := *n
	c.Over = old
	return &c
}

// dereference finds the container that the interpolation n, met anywhere in root, points at.
func dereference(root *Node, env *environment) func(*Node) *Node {
	return func(n *Node) *Node {
		if p := n.tmpl.single(); p == nil || p.node == nil || p.node.up > 0 {
			return nil
		}
		at, err := newResolver(root, env).value(&place{up: &place{node: root}, node: n, key: "\x00"})
		if err != nil || !at.node.container() {
			return nil
		}
		return at.node
	}
}
