package configs

import (
	"strings"

	"fulcrum/internal/secret"
)

// Secrets refuses passwords and keys that stand in the config itself: it is copied into the run folder, into a sweep's
// ledger and to trackers as it is written. They are in addresses (http://me:PASSWORD@host?api_key=KEY), in entries
// named like secrets of headers and env_set, and in arguments of a command.
func (c *Composed) Secrets() error {
	s := &secrets{seen: map[string]bool{}}
	s.walk(c.tree, "")
	for _, o := range c.overrides { // one that a later override replaces is written down too
		_, value, _ := strings.Cut(o.Text, "=")
		if what := secret.InAddress(value); what != "" {
			s.fault(o.Key, o.where(), what)
		}
	}
	return s.faults.err()
}

type secrets struct {
	faults Errors
	seen   map[string]bool
}

func (s *secrets) fault(path string, where Origin, what string) {
	if s.seen[path] {
		return
	}
	s.seen[path] = true
	if where.Line == 0 { // the override as typed holds it
		where = Origin{}
	}
	const remedy = "holds %s, which would stand in the files of the run: set a variable of the environment and write ${oc.env:NAME}"
	s.faults = append(s.faults, errorAt(where, path+" "+remedy, what))
}

// walk looks at a node, at what it replaced and at what it holds.
func (s *secrets) walk(n *Node, path string) {
	for old := n.Over; old != nil; old = old.Over {
		s.scalar(old, path)
	}
	if path == "hydra.overrides" { // the overrides as typed, which have keys of their own
		return
	}
	s.scalar(n, path)
	parent := path[strings.LastIndexByte(path, '.')+1:]
	for i, v := range n.Vals {
		if n.Kind == List {
			s.walk(v, path)
			if parent == "command" && v.Kind == String {
				s.argument(n.Vals, i, path)
			}
			continue
		}
		sub := strings.TrimPrefix(path+"."+n.Keys[i].Text, ".")
		s.walk(v, sub)
		if (parent == "headers" || parent == "env_set") && secret.Named(n.Keys[i].Text) && !v.container() && v.Kind != Null &&
			secret.Literal(v.pyStr()) {
			s.fault(sub, v.Origin, "a secret")
		}
	}
}

func (s *secrets) scalar(n *Node, path string) {
	if n.Kind == String {
		if what := secret.InAddress(n.Text); what != "" {
			s.fault(path, n.Origin, what)
		}
	}
}

// argument looks at one argument of a command: --api-key=KEY, or --api-key with the next one.
func (s *secrets) argument(args []*Node, i int, path string) {
	name, value, given := strings.Cut(args[i].Text, "=")
	bare := strings.TrimLeft(name, "-")
	if bare == name || bare == "key" || !secret.Named(bare) { // --key is often a field's name
		return
	}
	if !given && i+1 < len(args) && args[i+1].Kind == String && !strings.HasPrefix(args[i+1].Text, "-") {
		value = args[i+1].Text
	}
	if secret.Literal(value) {
		s.fault(path, args[i].Origin, "a secret ("+name+"; a command inherits the environment)")
	}
}
