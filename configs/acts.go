package configs

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// Owners says which keys have an effect. A section belongs to a task, a policy, a kind of data or a phase: where that was not chosen, its
// keys do nothing. value returns a configuration's value by its dotted key.
type Owners interface {
	// Acts reports whether a section, or a key in one, has an effect in a run with these values. A section acts where a part of it does.
	// given asks about a key that the user has set himself: stages of a task take such a key even where this run's choices do not.
	Acts(value func(key string) any, key string, given bool) bool
	// Checked reports whether a section is asked to Validate: where a run reads single keys of it only, the others may say what they like.
	Checked(value func(key string) any, section string) bool
	// Choices returns overrides of which each would give the key an effect.
	Choices(value func(key string) any, key string) []string
}

// OwnedBy says which keys act, and which sections are asked to Validate. Without owners all do and are.
func (s *Schema) OwnedBy(o Owners) { s.owners = o }

// acts reports whether a key that the user sets has an effect in a run with the values of root.
func (s *Schema) acts(root *Node, key string) bool {
	section, _, _ := strings.Cut(key, ".")
	f := s.root.sub(section)
	return s.owners == nil || f == nil || f.kind != Map || s.owners.Acts(valuesOf(root), key, true)
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

// dropIdle takes what has no effect out of the tree. A value that leads there by an interpolation is resolved first.
func (c *Composed) dropIdle(s *Schema) {
	if s.owners == nil {
		return
	}
	job, hydra := c.job(), c.tree.Get("hydra")
	r := c.resolver(job)
	known := map[string]any{}
	a := &acting{schema: s, value: func(key string) any {
		v, ok := known[key]
		if !ok {
			if at, err := r.find(0, splitPath(key), r.root); err == nil && at != nil {
				if n, err := r.expand(at); err == nil {
					v = n.value()
				}
			}
			known[key] = v
		}
		return v
	}}
	kept := a.sections(job)
	c.dropped, c.waiting = a.dropped, a.waiting
	u := &unlinker{gone: slices.Concat(a.dropped, a.hidden, a.waiting)}
	if len(u.gone) == 0 {
		return
	}
	c.tree = u.of(r, &place{node: job}, kept)
	if hydra != nil {
		r = c.resolver(c.whole)
		at := &place{r.root, hydra, "hydra"}
		c.tree = c.tree.set(strKey("hydra"), u.of(r, at, hydra))
	}
	c.links = u.links
}

// acting takes a configuration apart.
type acting struct {
	schema  *Schema
	value   func(key string) any
	dropped []string // the outermost keys that were taken out
	hidden  []string // keys that have the value of their section's kind, and those of parts that are switched off
	waiting []string // keys that the user has set in parts that are switched off
}

// sections returns the sections of a configuration with what acts in them.
func (a *acting) sections(job *Node) *Node {
	return job.mapped(func(key string, v *Node) *Node {
		f := a.schema.root.sub(key)
		switch {
		case f == nil || f.kind != Map:
			return v
		case len(f.fields) == 0 && len(v.Vals) == 0: // the user's own section, without keys
			return nil
		}
		if v = a.keep(f, v, key); v == nil {
			a.dropped = append(a.dropped, key)
			return nil
		}
		return a.ofKind(f, v)
	})
}

// keep returns what acts of the value of a key; nil: nothing does.
func (a *acting) keep(f *field, n *Node, path string) *Node {
	acts := a.schema.owners.Acts(a.value, path, false)
	parts := n.Kind == Map && len(f.fields) > 0 && len(n.Vals) > 0
	inner := parts && strings.Contains(path, ".") // decided key by key: owners that claim some of its keys leave the others to all
	if !inner && !acts && !a.schema.owners.Acts(a.value, path, true) {
		return nil
	}
	if !parts {
		if acts || n.Origin.given() {
			return n
		}
		return nil
	}
	var idle []string
	off := f.when.within && !f.when.holds(n)
	out := n.mapped(func(key string, v *Node) *Node {
		below, sub := path+"."+key, f.sub(key)
		if sub == nil {
			return v
		}
		if off && key != f.when.key || !sub.when.within && !sub.when.holds(n) {
			if v = a.set(v, below); v == nil {
				return nil
			}
		}
		if v = a.keep(sub, v, below); v == nil {
			idle = append(idle, below)
		}
		return v
	})
	if len(out.Vals) == 0 {
		return nil
	}
	a.dropped = append(a.dropped, idle...)
	if len(idle) == 0 && slices.Equal(out.Vals, n.Vals) {
		return n
	}
	return out
}

// set returns what the user has set of a part that is switched off: he sees that it waits for the switch.
func (a *acting) set(n *Node, path string) *Node {
	if n.Kind != Map {
		if n.Origin.given() {
			a.waiting = append(a.waiting, path)
			return n
		}
		a.hidden = append(a.hidden, path)
		return nil
	}
	out := n.mapped(func(key string, v *Node) *Node { return a.set(v, path+"."+key) })
	if len(out.Vals) == 0 {
		return nil
	}
	return out
}

// ofKind returns a section of another name than its kind's with its kind and what was set: the rest is the kind's, and hidden.
func (a *acting) ofKind(f *field, n *Node) *Node {
	if f.of == "" || f.of == f.key {
		return n
	}
	same := defaultNode(reflect.ValueOf(a.schema.root.free.kinds[f.of]).Elem(), f)
	n = a.unlike(n, same, f.key).without("kind")
	n.Keys = append([]Key{strKey("kind")}, n.Keys...)
	n.Vals = append([]*Node{plainString(f.of)}, n.Vals...)
	return n
}

// unlike returns a copy of a section without the values at their default that are the kind's too.
func (a *acting) unlike(n, same *Node, path string) *Node {
	return n.mapped(func(key string, v *Node) *Node {
		was, below := same.Get(key), path+"."+key
		if v.Kind == Map && was != nil && was.Kind == Map {
			if v = a.unlike(v, was, below); len(v.Vals) == 0 {
				return nil
			}
		} else if was != nil && v.Origin == byDefault && v.equal(was) {
			a.hidden = append(a.hidden, below)
			return nil
		}
		return v
	})
}

// given reports whether a value was set by the user: on the command line or in a file that is not ours.
func (o Origin) given() bool {
	return o != byDefault && o != (Origin{}) && !strings.HasPrefix(o.Source, builtinFiles)
}

// unlinker resolves interpolations that lead to keys which are gone.
type unlinker struct{ gone, links []string }

// of returns kept, what is left of the value at l, without interpolations that lead to what is gone.
func (u *unlinker) of(r *resolver, l *place, kept *Node) *Node {
	if kept.tmpl != nil {
		before := len(u.links)
		clear(r.done) // what is known already visits nothing
		r.visit = func(to *place) {
			path := to.path()
			if slices.ContainsFunc(u.gone, func(gone string) bool { return Covers(gone, path) || Covers(path, gone) }) {
				u.links = append(u.links, path)
			}
		}
		_, err := r.value(l) // composing names the faults
		r.visit = nil
		if err == nil && len(u.links) > before {
			if n, err := r.expand(l); err == nil {
				return n
			}
		}
		return kept
	}
	out := kept
	for i, v := range kept.Vals {
		key := kept.keyAt(i)
		if at := (&place{l, l.node.child(key), key}); at.node != nil && at.path() != "hydra.overrides" { // which stands as typed
			out = out.replaced(kept, i, v, u.of(r, at, v))
		}
	}
	return out
}

// Setting is a key that the user has set.
type Setting struct {
	Key   string
	Where Origin // in his primary file; zero for the command line
	text  string // as typed
	group bool   // a config group, which fills the section
}

// Typed returns what overrides, as typed, set in the job's configuration. What belongs to every run is left out.
func (c *Composed) Typed(overrides []string) []Setting {
	var out []Setting
	for _, text := range overrides {
		o, err := ParseOverride(text)
		if err != nil || o.isHydra() || o.Op == opDelete || o.HasPackage {
			continue
		}
		out = append(out, Setting{Key: strings.ReplaceAll(o.Key, "/", "."), text: text, group: c.composer.isGroup(o)})
	}
	return out
}

// Own returns what the user's own primary file sets.
func (c *Composed) Own() []Setting {
	var out []Setting
	for _, item := range c.base.list {
		if item.primary && c.base.schema != nil && !strings.HasPrefix(item.file.file, builtinFiles) {
			leaves(item.file.content, item.pkg, func(name string, _ *Node) {
				n := c.whole.Find(name)
				if n != nil && n.Origin.Source == item.file.file && !Covers("hydra", name) { // nothing has replaced it
					out = append(out, Setting{Key: name, Where: n.Origin})
				}
			})
		}
	}
	return out
}

// Idle returns those of some settings that have no effect in this run: nothing that acts reads them or is linked to them.
func (c *Composed) Idle(set []Setting) []Setting { return c.idle(set, false) }

// IdleGroups returns the choices of a config group, as typed, that have no effect.
func (c *Composed) IdleGroups(overrides []string) []Setting { return c.idle(c.Typed(overrides), true) }

func (c *Composed) idle(set []Setting, groups bool) []Setting {
	return slices.DeleteFunc(slices.Clone(set), func(s Setting) bool {
		covers := func(gone string) bool { return Covers(gone, s.Key) }
		return s.group != groups || !slices.ContainsFunc(c.dropped, covers) || c.linked(s.Key)
	})
}

func (c *Composed) linked(key string) bool {
	return slices.ContainsFunc(c.links, func(path string) bool { return Covers(path, key) || Covers(key, path) })
}

// Waiting returns those of some settings that another setting switches off, which is no error: scripts share settings.
func (c *Composed) Waiting(set []Setting) []Setting {
	return list.Filter(set, func(s Setting) bool { return slices.Contains(c.waiting, s.Key) && !c.linked(s.Key) })
}

// Covers reports whether key is outer or a key below it.
func Covers(outer, key string) bool {
	rest, ok := strings.CutPrefix(key, outer)
	return ok && (rest == "" || rest[0] == '.')
}

// RefuseIdle returns an error that names each of the settings, and the choice that would give it an effect; nil where there are none.
func (c *Composed) RefuseIdle(idle []Setting) error {
	return Errors(list.Map(idle, func(s Setting) *Error { // the value may be a secret
		return errorAt(s.Where, "%s, and has no effect in this run", c.Belongs(s.Key))
	})).err()
}

// Belongs says which choices, or which value of a neighbour, would give a key an effect.
func (c *Composed) Belongs(key string) string {
	if !slices.ContainsFunc(c.dropped, func(gone string) bool { return Covers(gone, key) }) {
		if switches := c.base.schema.conditions(key); len(switches) > 0 {
			return key + " acts where " + strings.Join(switches, " and ")
		}
	}
	root := c.job() // of a sweep: its jobs are resolved
	if n, err := c.Resolved(); err == nil {
		root = n
	}
	choices := c.base.schema.owners.Choices(valuesOf(root), key)
	if n := len(choices); n > 1 {
		choices = []string{strings.Join(choices[:n-1], ", ") + " or " + choices[n-1]}
	}
	belongs := key + " belongs to " + strings.Join(choices, "")
	_, last, _ := strings.Cut(key, ".")
	here := list.Filter(c.base.schema.elsewhere(last, last, root), func(path string) bool { return c.base.schema.acts(root, path) })
	if n := len(here); n > 0 && n < 3 && strings.HasPrefix(choices[0], "task=") { // of generate.temperature: grpo.sample_temperature
		belongs += " (here: " + strings.Join(here, ", ") + ")"
	}
	return belongs
}

// String returns the setting as the user has typed it, or its key.
func (s Setting) String() string { return cmp.Or(s.text, s.Key) }
