package configs

import "strings"

// Explain says where the value of a dotted key comes from: its value, the place that set it, and
// the values it replaced, newest first.
func (c *Composed) Explain(key string) (string, error) {
	n := c.tree.Find(key)
	if n == nil {
		if s := c.composer.req.Schema; s != nil {
			return "", errorf("%s", s.unknown(key))
		}
		var names []string
		leaves(c.job(), "", &names)
		return "", errorf("unknown key %s%s", key, didYouMean(key, names))
	}
	var b strings.Builder
	if n.Kind == Map { // a section: every value below it
		var names []string
		leaves(n, key, &names)
		width := 0
		for _, name := range names {
			width = max(width, len(name)+2+len(oneLine(c.tree.Find(name))))
		}
		for _, name := range names {
			v := c.tree.Find(name)
			line := name + ": " + oneLine(v)
			b.WriteString(line + strings.Repeat(" ", max(width-len(line), 0)) + "  # " + v.Origin.String() + "\n")
		}
		return b.String(), nil
	}
	b.WriteString(key + ": " + oneLine(n) + "\n")
	if n.tmpl != nil {
		r := c.resolver(c.tree)
		if !strings.HasPrefix(key, "hydra.") {
			r = c.resolver(c.job())
		}
		if at, err := r.find(0, splitPath(key), r.root); err == nil && at != nil {
			if v, err := r.expand(at); err == nil {
				b.WriteString("  resolves to " + oneLine(v) + "\n")
			}
		}
	}
	b.WriteString("  set by " + n.Origin.String() + "\n")
	for old := n.Over; old != nil; old = old.Over {
		b.WriteString("  over " + oneLine(old) + " set by " + old.Origin.String() + "\n")
	}
	if s := c.composer.req.Schema; s != nil {
		if f := s.find(key); f != nil && f.help != "" {
			b.WriteString("  " + f.help + " (" + f.want() + ")\n")
		}
	}
	return b.String(), nil
}

func leaves(n *Node, path string, out *[]string) {
	if n.Kind != Map || len(n.Keys) == 0 {
		*out = append(*out, path)
		return
	}
	for i, k := range n.Keys {
		leaves(n.Vals[i], strings.TrimPrefix(path+"."+k.Text, "."), out)
	}
}

// oneLine shows a value in one line of flow style.
func oneLine(n *Node) string {
	if n == nil {
		return ""
	}
	if !n.container() {
		return strings.TrimRight((&Node{Kind: List, Vals: []*Node{n}}).toYAML()[2:], "\n")
	}
	return n.pyRepr()
}
