package configs

import (
	"regexp"
	"strings"

	"fulcrum/internal/list"
)

// What parsed elements become: trees, and text again as Hydra re-prints it for the jobs of a sweep.

// withQuotes writes text so that quoted reads it back.
func withQuotes(s string, q byte) string {
	var b strings.Builder
	b.WriteByte(q)
	for i := 0; i < len(s); {
		run := span(s[i:], `\`)
		i += run
		if i == len(s) || s[i] == q {
			run *= 2
		}
		b.WriteString(strings.Repeat(`\`, run))
		if i < len(s) {
			if s[i] == q {
				b.WriteByte('\\')
			}
			b.WriteByte(s[i])
			i++
		}
	}
	b.WriteByte(q)
	return b.String()
}

// toNode turns an element without sweeps into a tree.
func (e *elem) toNode() *Node {
	switch e.kind {
	case listElem, extendElem, choiceSweep:
		return newList(list.Map(e.items, (*elem).toNode)...)
	case dictElem:
		n := newMap()
		for i, x := range e.items {
			n.Keys, n.Vals = append(n.Keys, e.keys[i].key()), append(n.Vals, x.toNode())
		}
		return n
	}
	return e.node
}

// reprint writes an element as Hydra re-prints the overrides of a sweep's jobs: numbers as Python
// prints them, quoted text with its quotes, other text escaped.
func (e *elem) reprint() string {
	switch e.kind {
	case listElem, extendElem:
		open, end := "[", "]"
		if e.kind == extendElem {
			open, end = "extend_list(", ")"
		}
		return open + strings.Join(list.Map(e.items, (*elem).reprint), ",") + end
	case dictElem:
		item := func(i int) string { return scalarOf(e.keys[i]).reprint() + ":" + e.items[i].reprint() }
		return "{" + strings.Join(list.Make(len(e.items), item), ",") + "}"
	}
	switch {
	case e.quote != 0:
		return withQuotes(e.node.Text, e.quote)
	case e.node.Kind == Null:
		return "null"
	case e.node.Kind == String:
		return escaped.ReplaceAllString(e.node.Text, `\$0`)
	}
	return e.node.pyStr()
}

// escaped are the characters of text that stand behind a backslash.
var escaped = regexp.MustCompile(`[\\()\[\]{}:=, \t]`)

// Quote makes any text one string of the override grammar.
func Quote(text string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\'`, `\\'`), "'", `\'`) + "'"
}
