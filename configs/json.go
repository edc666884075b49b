package configs

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// JSON as Python writes it: for json_str() and for fingerprints.

// jsonText is Python's json.dumps of a value.
func jsonText(n *Node) string {
	switch n.Kind {
	case Null:
		return "null"
	case Bool:
		return strconv.FormatBool(n.Bool)
	case Int:
		return n.Text
	case Float:
		text := pyFloat(n.Num)
		return cmp.Or(map[string]string{"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[text], text)
	case String:
		return jsonQuote(n.Text)
	}
	parts := make([]string, len(n.Vals))
	for i, v := range n.Vals {
		parts[i] = jsonText(v)
		if n.Kind == Map {
			k := n.Keys[i]
			text := k.Text
			if k.Kind == Bool {
				text = strings.ToLower(text)
			}
			parts[i] = jsonQuote(text) + ": " + parts[i]
		}
	}
	if n.Kind == Map {
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// jsonQuote escapes as Python's json does by default: all but ASCII as \uXXXX.
func jsonQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	const from, to = "\"\\\n\t\r\b\f", `"\ntrbf`
	for _, r := range s {
		i := strings.IndexRune(from, r)
		switch {
		case i >= 0:
			b.WriteString(`\` + to[i:i+1])
		case r >= 0x20 && r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			v := r - 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(v>>10), 0xdc00+(v&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
