package configs

import (
	"strconv"
	"strings"

	"fulcrum/internal/registry"
)

// place is a value together with the containers around it: relative interpolations need them.
type place struct {
	up   *place
	node *Node
	key  string
}

// id identifies a place: unlike path it tells the key "a.b" from b inside a, and 1 from "1".
func (l *place) id() string {
	if l == nil || l.up == nil {
		return ""
	}
	kind := "\x00"
	if up := l.up.node; up.Kind == Map && up.index(strKey(l.key)) < 0 {
		kind = "\x01"
	}
	return l.up.id() + kind + l.key
}

func (l *place) path() string {
	if l == nil || l.up == nil {
		return ""
	}
	return strings.TrimPrefix(l.up.path()+"."+l.key, ".")
}

// resolver evaluates the interpolations of one tree. Results are shared; nothing is evaluated twice.
type resolver struct {
	*environment
	root     *place
	hydra    *Node           // what ${hydra:…} looks into: the whole tree with its hydra node
	active   map[string]bool // places being evaluated: meeting one again is a cycle
	done     map[string]resolved
	expanded map[string]*Node
	settled  map[string]*Node // interpolations that the walk over the tree has replaced so far
	quiet    int              // > 0: inside a resolver's arguments, where nothing is replaced
	fleeting int              // texts built so far that will read otherwise once the walk has come by
	sizes    map[*Node]int
	clean    map[*Node]bool // containers without an interpolation anywhere inside
	steps    int
	visit    func(l *place) // nil: nobody asks which values are linked to
}

type resolved struct {
	at  *place
	err error
}

// missingError says that an interpolation ended in a value that is still ???.
type missingError struct {
	path  string
	ahead bool // the ??? is met on the way along a path, not at the end of another interpolation
}

func (e *missingError) Error() string { return "interpolation to missing value " + e.path }

// scalarError says that a path goes through a value that holds no other.
type scalarError struct{ path, key string }

func (e *scalarError) Error() string {
	return "Interpolation key '" + e.path + "." + e.key + "' not found: node '" + e.path +
		"' is not a container and thus cannot contain '" + e.key + "'"
}

// indexError says that a path names an item of a list by something that is no integer.
type indexError struct{ path, key string }

func (e *indexError) Error() string {
	return "Interpolation key '" + e.path + "." + e.key + "' not found: '" + e.path + "' is a list and index '" + e.key + "' is not an int"
}

func newResolver(root *Node, env *environment) *resolver {
	return &resolver{root: &place{node: root}, hydra: root, environment: env,
		active: map[string]bool{}, done: map[string]resolved{}, expanded: map[string]*Node{}, settled: map[string]*Node{},
		sizes: map[*Node]int{}, clean: map[*Node]bool{}}
}

const (
	maxText  = 1 << 22 // length of text built by interpolation
	maxSteps = 1 << 17 // evaluations in one tree; results are kept, so that few trees need many
)

// value evaluates l until it is no interpolation, and returns where the result lives.
func (r *resolver) value(l *place) (*place, error) {
	if l.node.tmpl == nil {
		return l, nil
	}
	id := l.id()
	if n := r.settled[id]; n != nil && n.isMissing() {
		return &place{l.up, n, l.key}, nil
	}
	if d, ok := r.done[id]; ok {
		return d.at, d.err
	}
	if r.active[id] {
		return nil, errorf("Recursive interpolation detected: a cycle at %s", l.path())
	}
	if r.steps++; r.steps > maxSteps || len(r.active) > 4*maxDepth {
		return nil, errorf("too many interpolations at %s", l.path())
	}
	r.active[id] = true
	before := r.fleeting
	at, err := r.eval(l.node.tmpl, l)
	delete(r.active, id)
	if err != nil {
		if _, located := err.(*Error); !located || err.(*Error).Where.Source == "" {
			if _, miss := err.(*missingError); !miss {
				err = errorAt(l.node.Origin, "%s%s: %v", keyPrefix(l.path()), clip(l.node.Text), err)
			}
		}
	}
	if r.fleeting == before {
		r.done[id] = resolved{at, err}
	}
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
			return nil, &missingError{path: at.path()}
		}
		return at, nil
	}
	n, err := r.joined(t, l)
	if err != nil {
		return nil, err
	}
	return &place{l.up, n, l.key}, nil
}

// joined is the text of a template at place l.
func (r *resolver) joined(t *template, l *place) (*Node, error) {
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
		if at.node.isMissing() && p.node != nil {
			return nil, &missingError{path: at.path()}
		}
		r.text(&b, at, false)
		if b.Len() > maxText {
			return nil, errorf("interpolations build a text longer than %d bytes", maxText)
		}
	}
	return r.computed(plainString(b.String()), l), nil
}

// text writes a value as Python's str() prints it (repr: as part of a container). Interpolations
// inside a container appear as they are written, unless the walk over the tree has come by already:
// OmegaConf replaces them one after the other.
func (r *resolver) text(b *strings.Builder, l *place, repr bool) {
	n := l.node
	if r.steps++; r.steps > maxSteps {
		b.WriteString(strings.Repeat(" ", maxText)) // the caller refuses text of this length
		return
	}
	if n.tmpl != nil {
		if done := r.settled[l.id()]; done != nil {
			n = done
		} else {
			r.fleeting++
		}
	}
	switch {
	case b.Len() > maxText:
	case n.Kind == String && !repr:
		b.WriteString(n.Text)
	case !n.container() || n != l.node: // what has been replaced holds no interpolations
		b.WriteString(n.pyRepr())
	default:
		n.pyContainer(b, func(i int) { r.text(b, &place{l, n.Vals[i], n.keyAt(i)}, true) })
	}
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
	name := make([]string, len(p.call.name))
	for i, k := range p.call.name {
		name[i] = k.text
		if k.ref == nil {
			continue
		}
		at, err := r.part(k.ref, l)
		if err != nil {
			return nil, err
		}
		if at.node.Kind != String {
			return nil, errorf("the name of a resolver must be text, but the interpolation gave %s", at.node.pyRepr())
		}
		name[i] = at.node.Text
	}
	return r.call(strings.Join(name, "."), p.call, l)
}

// follow evaluates a node interpolation met at l. A key that is itself an interpolation may hold a
// whole path, also a relative one.
func (r *resolver) follow(ref *nodeRef, l *place) (*place, error) {
	up := ref.up
	var keys []string
	for i, k := range ref.keys {
		if k.ref == nil {
			keys = append(keys, k.text)
			continue
		}
		at, err := r.part(k.ref, l)
		if err != nil {
			return nil, err
		}
		if at.node.isMissing() {
			return nil, &missingError{path: at.path()}
		}
		if at.node.Kind != String && at.node.Kind != Int {
			return nil, errorf("an interpolation used as a key should give text or an integer, but it gave %s", at.node.pyRepr())
		}
		text := at.node.Text
		if i == 0 && !k.bracket {
			dots := span(text, ".")
			up += dots
			text = text[dots:]
		}
		keys = append(keys, splitPath(text)...)
	}
	at, err := r.walk(up, keys, l)
	if err != nil {
		return nil, err
	}
	if at == nil {
		full := strings.Repeat(".", up) + strings.Join(keys, ".")
		return nil, errorf("Interpolation key '%s' not found%s", full, r.nearKey(up, keys, l))
	}
	for c := l; c != nil; c = c.up {
		if c.node == at.node && c.node.container() {
			return nil, errorf("Interpolation to parent node detected: '%s' holds this value", strings.Join(keys, "."))
		}
	}
	return at, nil
}

// nearKey names a key that exists in place of the first one of a path that does not.
func (r *resolver) nearKey(up int, keys []string, l *place) string {
	for n := range keys {
		at, err := r.find(up, keys[:n], l)
		if err != nil || at == nil || at.node.Kind != Map {
			return ""
		}
		if at.node.Get(keys[n]) != nil {
			continue
		}
		if own := at.node.Get(ownSection); n == 0 && own != nil && own.Get(keys[0]) != nil { // it has moved there
			return registry.DidYouMean(ownSection+"."+keys[0], true)
		}
		near, ok := registry.Nearest(keys[n], at.node.names())
		return registry.DidYouMean(strings.Repeat(".", up)+joinPath(append(keys[:n:n], near)), ok)
	}
	return ""
}

// find is walk where a path through something that holds no keys is an absent one.
func (r *resolver) find(up int, keys []string, l *place) (*place, error) {
	at, err := r.walk(up, keys, l)
	if _, scalar := err.(*scalarError); scalar {
		return nil, nil
	}
	return at, err
}

// walk goes from l (up dots) or the root along keys; nil when a key is absent.
func (r *resolver) walk(up int, keys []string, l *place) (*place, error) {
	cur, dots := r.root, up
	if up > 0 {
		cur = l
		for ; up > 0; up-- {
			if cur.up == nil {
				return nil, errorf("ConfigKeyError: error resolving key '%s%s': too many dots, the root is reached", strings.Repeat(".", dots),
					strings.Join(keys, "."))
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
			return nil, &missingError{c.path(), true}
		}
		if !c.node.container() {
			return nil, &scalarError{strings.Join(keys[:i], "."), key}
		}
		if _, err := strconv.Atoi(key); err != nil && c.node.Kind == List {
			return nil, &indexError{strings.Join(keys[:i], "."), key}
		}
		child := c.node.child(key)
		if child == nil {
			return nil, nil
		}
		cur = &place{c, child, key}
	}
	if r.visit != nil {
		r.visit(cur)
	}
	return r.value(cur)
}

// expand resolves everything inside a value and returns a tree without interpolations. Values that end in ??? stay ???.
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
		if at.node.Origin == l.node.Origin && l.node.tmpl == nil {
			return at.node, nil
		}
		n := *at.node // faults of a linked value are reported where the link is
		if n.Origin = l.node.Origin; l.node.tmpl != nil {
			n.from = l.node.Text
		}
		return &n, nil
	}
	if r.clean[at.node] {
		return at.node, nil
	}
	id, path := at.id(), at.path()
	anchored := at.up == nil || at.up.node.child(at.key) == at.node
	if n := r.expanded[id]; n != nil && anchored {
		return n, nil
	}
	guard := "expand " + id
	if r.active[guard] {
		return nil, errorAt(at.node.Origin, "%sRecursive interpolation detected: a cycle", keyPrefix(path))
	}
	r.active[guard] = true
	defer delete(r.active, guard)
	if len(r.active) > 8*maxDepth {
		return nil, errorAt(at.node.Origin, "%sinterpolations nested too deeply", keyPrefix(path))
	}
	out, size := at.node, 1
	for i, v := range at.node.Vals {
		child := &place{at, v, at.node.keyAt(i)}
		n, err := r.expand(child)
		if err != nil {
			return nil, err
		}
		if v.tmpl != nil && r.quiet == 0 {
			r.settled[child.id()] = n
		}
		if s, ok := r.sizes[n]; ok {
			size += s
		} else {
			size++
		}
		out = out.replaced(at.node, i, v, n)
	}
	if size > maxNodes {
		return nil, errorAt(at.node.Origin, "%sinterpolations expand to more than %d values", keyPrefix(path), maxNodes)
	}
	r.sizes[out] = size
	if out == at.node {
		r.clean[out] = true
	}
	if anchored {
		r.expanded[id] = out
	}
	return out, nil
}

// evalElem gives the value of a resolver argument. A quoted one is always text.
func (r *resolver) evalElem(e *elem, l *place) (*Node, error) {
	switch {
	case e.parts != nil && e.quote != 0:
		return r.joined(e.parts, l)
	case e.parts != nil:
		at, err := r.eval(e.parts, l)
		if err != nil {
			return nil, err
		}
		r.quiet++
		defer func() { r.quiet-- }()
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
