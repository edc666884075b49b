package configs

import (
	"slices"
	"strings"
)

// Owners says which keys have an effect. A section belongs to a task, a policy, a kind of data or a phase: where that was not chosen, its
// keys do nothing. value returns a configuration's value by its dotted key.
type Owners interface {
	// Acts reports whether a section, or a key in one, has an effect in a run with these values. A section acts where a part of it does.
	Acts(value func(key string) any, key string) bool
	// Checked reports whether a section is asked to Validate: where a run reads single keys of it only, the others may say what they like.
	Checked(value func(key string) any, section string) bool
	// Choices returns overrides of which each would give the key an effect.
	Choices(value func(key string) any, key string) []string
}

// OwnedBy says which keys act, and which sections are asked to Validate. Without owners all do and are.
func (s *Schema) OwnedBy(o Owners) { s.owners = o }

// acts reports whether a key has an effect in a run with the values of root.
func (s *Schema) acts(root *Node, key string) bool {
	section, _, _ := strings.Cut(key, ".")
	f := s.root.sub(section)
	return s.owners == nil || f == nil || f.kind != Map || s.owners.Acts(valuesOf(root), key)
}

// checked reports whether an outermost field is asked to Validate.
func (s *Schema) checked(root *Node, f *field) bool {
	return s.owners == nil || f.kind != Map || s.owners.Checked(valuesOf(root), f.key)
}

// valuesOf returns the values of a tree by their keys; nil for those that are not known yet.
func valuesOf(root *Node) func(key string) any {
	return func(key string) any {
		if n := root.Find(key); n != nil && n.tmpl == nil {
			return n.value()
		}
		return nil
	}
}

// Idle returns those of the overrides, as typed, whose keys have no effect in this run: nothing that acts reads them or is linked to them.
func (c *Composed) Idle(overrides []string) []string { return c.idle(overrides, false) }

// IdleGroups returns those that choose an option of a group and have no effect.
func (c *Composed) IdleGroups(overrides []string) []string { return c.idle(overrides, true) }

func (c *Composed) idle(overrides []string, groups bool) []string {
	s := c.base.schema
	root, err := c.Resolved()
	if s == nil || s.owners == nil || err != nil {
		return nil
	}
	var linked []string
	looked := false
	return slices.DeleteFunc(slices.Clone(overrides), func(text string) bool {
		key, group := c.setBy(text)
		if key == "" || group != groups || s.acts(root, key) {
			return true
		}
		if !looked {
			linked, looked = c.linked(s, root), true
		}
		return slices.ContainsFunc(linked, func(path string) bool { return Covers(path, key) || Covers(key, path) })
	})
}

// Covers reports whether key is outer or a key below it.
func Covers(outer, key string) bool {
	rest, ok := strings.CutPrefix(key, outer)
	return ok && (rest == "" || rest[0] == '.')
}

// setBy returns the key that an override of the command line sets, of a config group the section that it fills; "" for
// what belongs to every run.
func (c *Composed) setBy(text string) (key string, group bool) {
	o, err := ParseOverride(text)
	if err != nil || o.isHydra() || o.Op == opDelete || o.HasPackage {
		return "", false
	}
	return strings.ReplaceAll(o.Key, "/", "."), c.composer.isGroup(o)
}

// linked returns the paths that interpolations in what acts, and in the hydra node, lead along.
func (c *Composed) linked(s *Schema, root *Node) (paths []string) {
	r := c.resolver(c.tree)
	r.visit = func(l *place) { paths = append(paths, l.path()) }
	var walk func(l *place)
	walk = func(l *place) {
		if l.node.tmpl != nil {
			_, _ = r.value(l) // composing has named the faults
		}
		for i, v := range l.node.Vals {
			below := &place{l, v, l.node.keyAt(i)}
			if path := below.path(); Covers("hydra", path) && path != "hydra.overrides" || s.acts(root, path) {
				walk(below)
			}
		}
	}
	walk(r.root)
	return paths
}

// RefuseIdle returns an error that names each of the overrides that are idle, and the choice that would give it an effect; nil where there
// are none.
func (c *Composed) RefuseIdle(idle []string) error {
	var faults Errors
	for _, text := range idle {
		faults = append(faults, errorf("%s, and has no effect in this run", c.Belongs(text))) // the value may be a secret
	}
	return faults.err()
}

// Belongs says which choices would give an override that is idle an effect.
func (c *Composed) Belongs(override string) string {
	root, err := c.Resolved()
	if err != nil { // of a sweep: its jobs are resolved
		root = c.job()
	}
	key, _ := c.setBy(override)
	choices := c.base.schema.owners.Choices(valuesOf(root), key)
	if n := len(choices); n > 1 {
		choices = []string{strings.Join(choices[:n-1], ", ") + " or " + choices[n-1]}
	}
	return key + " belongs to " + strings.Join(choices, "")
}
