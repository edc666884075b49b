package configs

import "strings"

// merger lays one tree over another as OmegaConf does.
type merger struct {
	env    *environment
	absent func(path string, in *Node) error // struct mode: the error for a key that is not there; nil: keys are added
	above  []frame                           // the containers around the value being merged, outermost first
}

// frame is a container under construction and the index of the value inside it that is worked on.
type frame struct {
	out *Node
	at  int
}

// merge lays src over dst: mappings merge key by key, everything else replaces. A mapping and a
// list do not mix. Where dst is a link to a container, a copy of the target takes its place first.
func merge(dst, src *Node, path string, m *merger) (*Node, error) {
	if dst == nil {
		return src, nil
	}
	if dst.tmpl != nil && (src.container() || src.isMissing()) {
		if target := m.target(); target != nil {
			dst = target
		}
	}
	if src.isMissing() && dst.Origin.Source != "default" { // ??? never hides a value, except a schema's default
		return dst, nil
	}
	if dst.container() && src.container() && dst.Kind != src.Kind {
		return nil, errorAt(src.Origin, "%sCannot merge incompatible container types: %s into %s set at %s", keyPrefix(path), src.Kind,
			dst.Kind, dst.Origin)
	}
	if dst.Kind != Map || src.Kind != Map {
		return src.over(dst), nil
	}
	out := &Node{Kind: Map, Keys: dst.Keys, Vals: append(make([]*Node, 0, len(dst.Vals)+len(src.Vals)), dst.Vals...), Origin: dst.Origin,
		Over: dst.Over}
	shared := true
	for i, k := range src.Keys {
		sub := strings.TrimPrefix(path+"."+k.Text, ".")
		j := out.index(k)
		if j < 0 {
			if m.absent != nil {
				return nil, m.absent(sub, dst)
			}
			if shared {
				out.Keys = append(make([]Key, 0, len(dst.Keys)+len(src.Keys)), dst.Keys...)
				shared = false
			}
			out.Keys, out.Vals = append(out.Keys, k), append(out.Vals, src.Vals[i])
			continue
		}
		m.above = append(m.above, frame{out, j})
		v, err := merge(out.Vals[j], src.Vals[i], sub, m)
		m.above = m.above[:len(m.above)-1]
		if err != nil {
			return nil, err
		}
		out.Vals[j] = v
	}
	return out, nil
}

// target is the container that the link at the innermost frame points at; nil when it is none.
func (m *merger) target() *Node {
	if len(m.above) == 0 {
		return nil
	}
	last := len(m.above) - 1
	tree := m.above[last].out // the trees around it as they are now
	for i := last - 1; i >= 0; i-- {
		tree = m.above[i].out.with(m.above[i].at, tree)
	}
	r := newResolver(tree, m.env)
	l := r.root
	for _, f := range m.above {
		l = &place{l, l.node.Vals[f.at], f.out.keyAt(f.at)}
	}
	at, err := r.value(l)
	if err != nil || !at.node.container() {
		return nil
	}
	return at.node
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

// framesTo makes the frames from the root of a tree down to a path, for a merge that starts there.
func framesTo(root *Node, path []string) []frame {
	var out []frame
	for _, part := range path {
		i := root.locate(part)
		out = append(out, frame{root, i})
		root = root.Vals[i]
	}
	return out
}

func joinPath(path []string) string { return strings.Join(path, ".") }
