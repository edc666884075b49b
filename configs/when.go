package configs

import (
	"slices"
	"strings"
)

// condition says when a key has an effect: where a neighbour has one of some values. Of a section, .enabled says that its other keys
// have one where its own key enabled does. Without values, any but null, false, 0, none and the empty text will do; ! turns it round.
type condition struct {
	key    string
	values []string
	within bool // key is in the section itself
	not    bool
}

// conditionOf reads the tag when.
func conditionOf(tag string) (c condition) {
	tag, c.not = strings.CutPrefix(tag, "!")
	tag, c.within = strings.CutPrefix(tag, ".")
	key, values, valued := strings.Cut(tag, "=")
	if c.key = key; valued {
		c.values = strings.Split(values, "|")
	}
	return c
}

// holds reports whether section n has such a value. A value that is not known yet may be any.
func (c condition) holds(n *Node) bool {
	v := n.Get(c.key)
	if c.key == "" || v == nil || v.tmpl != nil {
		return true
	}
	met := slices.Contains(c.values, v.Text)
	if c.values == nil {
		x, number := v.number()
		met = v.Kind != Null && (!number || x != 0) && !(v.Kind == String && (v.Text == "" || v.Text == "none"))
	}
	return met != c.not
}
