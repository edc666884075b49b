package configs

// memo knows which parts of a base tree are in order, so that the jobs of a sweep, which share those
// parts, are checked only where they differ. It is filled once and read by all jobs of a base.
type memo struct {
	fits  map[memoKey]bool // sections that fit their field as they are
	plain map[*Node]bool   // containers without an interpolation below
	valid map[memoKey]bool // sections that Validate accepts, with all below
	base  decoded          // nobody changes what it holds

	dropped []string // keys that base lacks because they have no effect
}

type memoKey struct {
	f *field
	n *Node
}

// learn types the base tree once and remembers what is in order. Faults stay where they are: an override may mend them.
func (c *Composer) learn(b *base) {
	s := b.schema
	b.memo = &memo{fits: map[memoKey]bool{}, plain: map[*Node]bool{}, valid: map[memoKey]bool{}}
	hydra := b.tree.Get("hydra")
	job := (&checker{schema: s}).fit(s.root, b.tree.without("hydra"), "")
	b.tree = job
	if hydra != nil {
		b.tree = job.set(strKey("hydra"), hydra)
	}
	b.memo.notePlain(b.tree)
	ck := &checker{schema: s, root: job, memo: b.memo, learning: true}
	ck.fit(s.root, job, "")
	alone := &Composed{composer: c, tree: b.tree, whole: b.tree, base: b}
	alone.dropIdle(s)
	job = alone.job()
	v, _ := s.decode(s.defaults, job) // what does not fit has been noticed
	b.memo.base, b.memo.dropped = decoded{v, job}, alone.dropped
	ck.validate(v, s.root, job, "")
}

// notePlain reports whether n has no interpolation below, and notes the containers that have none.
func (m *memo) notePlain(n *Node) bool {
	plain := n.tmpl == nil
	for _, v := range n.Vals {
		plain = m.notePlain(v) && plain
	}
	if plain && n.container() {
		m.plain[n] = true
	}
	return plain
}

// expand resolves the interpolations below l, passing over what has none.
func (m *memo) expand(r *resolver, l *place) (*Node, error) {
	if m == nil || !l.node.container() {
		return r.expand(l)
	}
	out := l.node
	if m.plain[out] {
		return out, nil
	}
	for i, v := range l.node.Vals {
		if !v.container() && v.tmpl == nil {
			continue
		}
		w, err := m.expand(r, &place{l, v, l.node.keyAt(i)})
		if err != nil {
			return nil, err
		}
		out = out.replaced(l.node, i, v, w)
	}
	return out, nil
}
