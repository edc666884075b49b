package configs

import (
	"strings"
	"time"
)

// place is a value together with the containers around it: relative interpolations need them.
type place struct {
	up   *place
	node *Node
	key  string
}

func (l *place) path() string {
	if l == nil || l.up == nil {
		return ""
	}
	if up := l.up.path(); up != "" {
		return up + "." + l.key
	}
	return l.key
}

// resolver evaluates the interpolations of one tree. Results are shared; nothing is evaluated twice.
type resolver struct {
	root     *place
	hydra    *Node // what ${hydra:…} looks into: the whole tree with its hydra node
	now      time.Time
	getenv   func(string) (string, bool)
	warn     func(string)
	active   map[string]bool // paths being evaluated: meeting one again is a cycle
	done     map[string]resolved
	expanded map[string]*Node
	sizes    map[*Node]int
	steps    int
}

type resolved struct {
	at  *place
	err error
}

// missingError says that an interpolation ended in a value that is still ???.
type missingError struct{ path string }

func (e *missingError) Error() string { return "interpolation to missing value " + e.path }

func newResolver(root *Node, env *environment) *resolver {
	return &resolver{root: &place{node: root}, hydra: root, now: env.now, getenv: env.getenv, warn: env.warn,
		active: map[string]bool{}, done: map[string]resolved{}, expanded: map[string]*Node{}, sizes: map[*Node]int{}}
}

// maxText bounds the length of text built by interpolation.
const maxText = 1 << 22

// value evaluates l until it is no interpolation, and returns where the result lives.
func (r *resolver) value(l *place) (*place, error) {
	if l.node.tmpl == nil {
		return l, nil
	}
	path := l.path()
	if d, ok := r.done[path]; ok {
		return d.at, d.err
	}
	if r.active[path] {
		return nil, errorf("interpolation cycle at %s", path)
	}
	if r.steps++; r.steps > maxNodes || len(r.active) > 4*maxDepth {
		return nil, errorf("too many interpolations at %s", path)
	}
	r.active[path] = true
	at, err := r.eval(l.node.tmpl, l)
	delete(r.active, path)
	if err != nil {
		if _, located := err.(*Error); !located || err.(*Error).Where.Source == "" {
			if _, miss := err.(*missingError); !miss {
				err = errorAt(l.node.Origin, "%s%s: %v", keyPrefix(path), clip(l.node.Text), err)
			}
		}
	}
	r.done[path] = resolved{at, err}
	return at, err
}

func keyPrefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// eval gives the value of a template at place l.
func (r *resolver) eval(t *template, l *place) (*place, error) {
	if t.isText() {
		return &place{l.up, r.computed(plainString(t.text()), l), l.key}, nil
	}
	if p := t.single(); p != nil {
		at, err := r.part(p, l)
		if err != nil {
			return nil, err
		}
		if at.node.isMissing() {
			return nil, &missingError{at.path()}
		}
		return at, nil
	}
	var b strings.Builder
	for i := range t.parts {
		p := &t.parts[i]
		if p.node == nil && p.call == nil {
			b.WriteString(p.lit)
			continue
		}
		at, err := r.part(p, l)
		if err != nil {
			return nil, err
		}
		if at.node.isMissing() {
			return nil, &missingError{at.path()}
		}
		n, err := r.expand(at)
		if err != nil {
			return nil, err
		}
		b.WriteString(n.pyStr())
		if b.Len() > maxText {
			return nil, errorf("text longer than %d bytes", maxText)
		}
	}
	return &place{l.up, r.computed(plainString(b.String()), l), l.key}, nil
}

// computed gives a computed value the origin of the text it came from.
func (r *resolver) computed(n *Node, l *place) *Node {
	if n.Origin == (Origin{}) {
		c := *n
		c.Origin = l.node.Origin
		return &c
	}
	return n
}

func (r *resolver) part(p *part, l *place) (*place, error) {
	if p.node != nil {
		return r.follow(p.node, l)
	}
	name, err := r.keys(p.call.name, l)
	if err != nil {
		return nil, err
	}
	return r.call(strings.Join(name, "."), p.call, l)
}

func (r *resolver) keys(keys []refKey, l *place) ([]string, error) {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.text
		if k.ref == nil {
			continue
		}
		at, err := r.part(k.ref, l)
		if err != nil {
			return nil, err
		}
		if at.node.container() || at.node.Kind == Null {
			return nil, errorf("%s as a key in an interpolation", at.node.Kind)
		}
		out[i] = at.node.pyStr()
	}
	return out, nil
}

// follow evaluates a node interpolation met at l.
func (r *resolver) follow(ref *nodeRef, l *place) (*place, error) {
	keys, err := r.keys(ref.keys, l)
	if err != nil {
		return nil, err
	}
	at, err := r.find(ref.up, keys, l)
	if err != nil {
		return nil, err
	}
	if at == nil {
		full := strings.Repeat(".", ref.up) + strings.Join(keys, ".")
		return nil, errorf("interpolation key '%s' not found", full)
	}
	return at, nil
}

// find walks from l (up dots) or the root along keys; nil when a key is absent.
func (r *resolver) find(up int, keys []string, l *place) (*place, error) {
	cur := r.root
	if up > 0 {
		cur = l
		for ; up > 0; up-- {
			if cur.up == nil {
				return nil, errorf("too many dots: the root is reached")
			}
			cur = cur.up
		}
	}
	for i, key := range keys {
		c, err := r.value(cur)
		if err != nil {
			return nil, err
		}
		if i > 0 && c.node.isMissing() {
			return nil, &missingError{c.path()}
		}
		if !c.node.container() {
			return nil, nil
		}
		child := c.node.child(key)
		if child == nil {
			return nil, nil
		}
		cur = &place{c, child, key}
	}
	return r.value(cur)
}

// expand resolves everything inside a value and returns a tree without interpolations. Values that
// end in ??? stay ???.
func (r *resolver) expand(l *place) (*Node, error) {
	at, err := r.value(l)
	if err != nil {
		if _, ok := err.(*missingError); ok {
			m := plainString(missing)
			m.Origin = l.node.Origin
			return m, nil
		}
		return nil, err
	}
	if !at.node.container() {
		if at.node.Origin == l.node.Origin {
			return at.node, nil
		}
		n := *at.node // faults of a linked value are reported where the link is
		n.Origin = l.node.Origin
		return &n, nil
	}
	path := at.path()
	anchored := at.up != nil && at.up.node.child(at.key) == at.node || at.up == nil
	if n := r.expanded[path]; n != nil && anchored {
		return n, nil
	}
	guard := "expand " + path
	if r.active[guard] && anchored {
		return nil, errorAt(at.node.Origin, "%sinterpolation cycle", keyPrefix(path))
	}
	r.active[guard] = true
	defer delete(r.active, guard)
	if len(r.active) > 8*maxDepth {
		return nil, errorAt(at.node.Origin, "%sinterpolations nested too deeply", keyPrefix(path))
	}
	out, size := at.node, 1
	for i, v := range at.node.Vals {
		key := ""
		if at.node.Kind == Map {
			key = at.node.Keys[i].Text
		} else {
			key = itoa(i)
		}
		n, err := r.expand(&place{at, v, key})
		if err != nil {
			return nil, err
		}
		if s, ok := r.sizes[n]; ok {
			size += s
		} else {
			size++
		}
		if n != v {
			if out == at.node {
				c := *at.node
				c.Vals = append([]*Node(nil), at.node.Vals...)
				out = &c
			}
			out.Vals[i] = n
		}
	}
	if size > maxNodes {
		return nil, errorAt(at.node.Origin, "%sinterpolations expand to more than %d values", keyPrefix(path), maxNodes)
	}
	r.sizes[out] = size
	if anchored {
		r.expanded[path] = out
	}
	return out, nil
}

// evalElem gives the value of a resolver argument.
func (r *resolver) evalElem(e *elem, l *place) (*Node, error) {
	switch {
	case e.parts != nil:
		at, err := r.eval(e.parts, l)
		if err != nil {
			return nil, err
		}
		return r.expand(at)
	case e.kind == scalarElem:
		return e.node, nil
	}
	n := newList()
	if e.kind == dictElem {
		n = newMap()
	}
	for i, x := range e.items {
		v, err := r.evalElem(x, l)
		if err != nil {
			return nil, err
		}
		n.Vals = append(n.Vals, v)
		if e.kind == dictElem {
			n.Keys = append(n.Keys, e.keys[i].key())
		}
	}
	return n, nil
}
