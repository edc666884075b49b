// Package visible shows characters that a terminal or a reader would obey instead of showing: data, such as the name of a
// tensor or the answer of a server, may hold them.
//
//	visible.Text("a\x1b[31mb\u202ec") == `a\x1b[31mb\u202ec`
package visible

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text returns text with its control characters as escapes: \x1b for ESC and the other ASCII ones but tab and line feed,
// \u009b for those of C1 and for what turns the direction of writing, \x9b for a byte that is no UTF-8. What stands in a
// string of a JSON document, where the first and the last kind do not occur, stays JSON and means the same.
func Text(text string) string {
	var b strings.Builder
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case r < ' ' && r != '\n' && r != '\t':
			fmt.Fprintf(&b, `\x%02x`, r)
		case r >= 0x7f && r <= 0x9f, r == 0x61c, r == 0x200e, r == 0x200f, // DEL, C1, marks of direction
			r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // separators of lines and paragraphs, overrides of direction
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return b.String()
}

// Whole returns how many bytes of text come before a character that is begun and not ended.
func Whole(text []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if at := len(text) - back; utf8.RuneStart(text[at]) {
			if utf8.FullRune(text[at:]) {
				return len(text)
			}
			return at
		}
	}
	return len(text)
}
