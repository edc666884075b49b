package configs

import (
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// explainWidth is the width that a section's settings and their origins keep to where they can.
const explainWidth = 80

// Explain says where the value of a dotted key comes from: its value, the place that set it, and
// the values it replaced, newest first. A section shows all values below it and what they mean; a config group shows
// its option and who chose it.
func (c *Composed) Explain(key string) (string, error) {
	key = strings.TrimLeft(key, "+~")
	choice := c.explainChoice(key)
	n := c.whole.Find(key)
	if n == nil && choice != "" {
		return choice, nil
	}
	if n == nil {
		return "", c.unknownKey(key)
	}
	var b strings.Builder
	if n.Kind == Map { // a section: every value below it
		if choice != "" {
			b.WriteString("# " + choice)
		}
		width, origin := 0, 0
		leaves(n, key, func(name string, v *Node) {
			width, origin = max(width, len(name)+2+len(oneLine(v))), max(origin, len(v.Origin.String()))
		})
		width = min(width, max(explainWidth-len("  # ")-origin, 0)) // longer settings push their own origin only
		leaves(n, key, func(name string, v *Node) {
			line := name + ": " + oneLine(v)
			b.WriteString(line + strings.Repeat(" ", max(width-len(line), 0)) + "  # " + v.Origin.String() + "\n")
			if s := c.base.schema; s != nil && s.Help(name) != "" {
				b.WriteString("  " + s.Help(name) + "\n")
			}
		})
		return b.String(), nil
	}
	b.WriteString(key + ": " + oneLine(n) + "\n")
	if n.tmpl != nil {
		r := c.resolver(c.whole)
		if !strings.HasPrefix(key, "hydra.") {
			r = c.resolver(c.whole.without("hydra"))
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
	if s := c.base.schema; s != nil {
		if f := s.find(key); f != nil && f.help() != "" {
			b.WriteString("  " + f.help() + " (" + f.want() + ")\n")
		}
		if slices.ContainsFunc(c.Unread(), func(s Setting) bool { return s.Key == key }) {
			b.WriteString("  nothing reads it: " + c.reader(key) + "='${" + key + "}' takes the value\n")
		}
		if this := []Setting{{Key: key}}; len(c.Idle(this))+len(c.Waiting(this)) > 0 {
			b.WriteString("  has no effect in this run: " + c.Belongs(key) + "\n")
		}
	}
	return b.String(), nil
}

// explainChoice is the line about a config group: its option, those that it has, and the place that chose it.
func (c *Composed) explainChoice(key string) string {
	group := strings.ReplaceAll(key, ".", "/")
	for _, e := range c.base.choices {
		if e.key == key || e.key == group {
			options, _ := c.composer.lib.list(strings.Split(e.key, "@")[0], false) // it could be read: an option of it was chosen
			return "group " + e.key + ": " + e.name + " (of " + strings.Join(options, ", ") + "), chosen by " + e.origin.String() + "\n"
		}
	}
	return ""
}

// unknownKey is the error for a key that the config does not have, with the nearest one.
func (c *Composed) unknownKey(key string) error {
	if s := c.base.schema; s != nil && !strings.HasPrefix(key, "hydra.") {
		if found := s.Suggest(key, nil); len(found) > 0 || strings.Contains(key, ".") {
			return errorf("%s", s.notFound(key, found))
		}
		return errorf("unknown key %s: want a key, a section or a group, as in `run explain grpo.kl.beta`, `run explain grpo`, "+
			"`run explain data`; `run --cfg job` prints all keys of a run", key)
	}
	names := list.Map(c.base.choices, func(e choiceEntry) string { return e.key })
	in, path := c.whole.without("hydra"), ""
	if strings.HasPrefix(key, "hydra.") {
		in, path = c.tree.Get("hydra"), "hydra"
	}
	leaves(in, path, func(name string, _ *Node) { names = append(names, name) })
	return errorf("unknown key %s%s", key, didYouMean(key, names))
}

// leaves visits the values below n, which stands at path; a list is one.
func leaves(n *Node, path string, visit func(path string, n *Node)) {
	if n.Kind != Map || len(n.Keys) == 0 {
		visit(path, n)
	}
	for i, k := range n.Keys {
		leaves(n.Vals[i], strings.TrimPrefix(path+"."+k.Text, "."), visit)
	}
}

// oneLine shows a value in one line of flow style.
func oneLine(n *Node) string {
	if n == nil {
		return ""
	}
	if !n.container() {
		return strings.TrimRight((&Node{Kind: List, Vals: []*Node{n}}).YAML()[2:], "\n")
	}
	return n.pyRepr()
}
