package configs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// bestWidth is the column behind which PyYAML folds text.
const bestWidth = 80

// YAML prints n as OmegaConf.to_yaml does: block style, list items at the parent's indent, text
// quoted where it would read back as something else.
func (n *Node) YAML() string {
	w := &yamlWriter{}
	w.node(n, 0, false)
	if w.col > 0 {
		w.b.WriteByte('\n')
	}
	return w.b.String()
}

type yamlWriter struct {
	b   strings.Builder
	col int
}

func (w *yamlWriter) put(s string) {
	w.b.WriteString(s)
	w.col += utf8.RuneCountInString(s)
}

func (w *yamlWriter) newline() { w.b.WriteByte('\n'); w.col = 0 }

// indent starts a line (unless at the start of one) and moves to column n.
func (w *yamlWriter) indent(n int) {
	if w.col > n {
		w.newline()
	}
	for w.col < n {
		w.b.WriteByte(' ')
		w.col++
	}
}

// node writes a value whose lines start at column indent; inline: the first line has begun already.
func (w *yamlWriter) node(n *Node, indent int, inline bool) {
	switch {
	case n.Kind == Map && len(n.Vals) > 0:
		for i, v := range n.Vals {
			if i > 0 || !inline {
				w.startLine(indent)
			}
			w.entry(n.Keys[i], v, indent)
		}
	case n.Kind == List && len(n.Vals) > 0:
		for i, v := range n.Vals {
			if i > 0 || !inline {
				w.startLine(indent)
			}
			w.put("- ")
			w.node(v, indent+2, true)
		}
	default:
		w.scalar(n, indent, false)
	}
}

func (w *yamlWriter) startLine(indent int) {
	if w.col > 0 {
		w.newline()
	}
	w.indent(indent)
}

func (w *yamlWriter) entry(k Key, v *Node, indent int) {
	kn := k.node()
	simple := kn.Kind != String || k.Text != "" && len([]rune(k.Text)) < 123 && !strings.ContainsAny(k.Text, "\n\u0085\u2028\u2029")
	if !simple {
		w.put("? ")
		w.scalar(kn, indent+2, false)
		w.startLine(indent)
		w.put(": ")
		w.node(v, indent+2, true)
		return
	}
	w.scalar(kn, indent, true)
	w.put(":")
	switch {
	case v.Kind == Map && len(v.Vals) > 0:
		w.node(v, indent+2, false)
	case v.Kind == List && len(v.Vals) > 0:
		w.node(v, indent, false)
	default:
		w.put(" ")
		w.scalar(v, indent+2, false)
	}
}

func (w *yamlWriter) scalar(n *Node, indent int, key bool) {
	switch n.Kind {
	case Null:
		w.put("null")
	case Bool:
		w.put(strconv.FormatBool(n.Bool))
	case Int:
		w.put(n.Text)
	case Float:
		w.put(yamlFloatText(n.Num))
	case Map:
		w.put("{}")
	case List:
		w.put("[]")
	case String:
		w.text(n.Text, indent, key)
	}
}

func (w *yamlWriter) text(s string, indent int, key bool) {
	runes := []rune(s)
	a := analyze(runes)
	quotes := readsAsOther(s)
	switch {
	case !quotes && a.plain && !(key && a.multiline):
		w.plain(runes, indent, !key)
	case a.single && !(key && a.multiline):
		w.single(runes, indent, !key)
	default:
		w.double(runes, indent, !key)
	}
}

// readsAsOther reports whether plain s would be read as something else than text by YAML 1.1,
// PyYAML, OmegaConf or Python's int() and float().
func readsAsOther(s string) bool {
	if plainScalar(s) != nil {
		return true
	}
	switch s {
	case "y", "Y", "n", "N", "=", "<<":
		return true
	}
	s = strings.Map(func(r rune) rune {
		if r > 0x7f && unicode.Is(unicode.Nd, r) {
			return '1' // Python's int() takes the digits of all scripts
		}
		return r
	}, s)
	if c := s[0]; c != '+' && c != '-' && c != '.' && !digit(c) && c != ' ' && !strings.ContainsRune("iInN", rune(c)) {
		return false
	}
	return pyIsNumber(s) || timestamp.MatchString(s)
}

// pyIsNumber reports whether Python's int() or float() accept s.
func pyIsNumber(s string) bool { return pyNumber.MatchString(strings.TrimSpace(s)) }

// pyNumber is a number as Python writes it: digits with single underscores between them, a point and an exponent.
var pyNumber = regexp.MustCompile(strings.ReplaceAll(`(?i)^[-+]?(?:inf|infinity|nan|(?:DIGITS(?:\.(?:DIGITS)?)?|\.DIGITS)(?:e[-+]?DIGITS)?)$`,
	"DIGITS", `\d(?:_?\d)*`))

// timestamp is YAML's dates as PyYAML knows them: 2001-12-14 and 2001-12-14 21:59:43.10 -5.
var timestamp = regexp.MustCompile(`^(?:\d{4}-\d\d-\d\d|\d{4}-\d\d?-\d\d?(?:[Tt]|[ \t]+)\d\d?:\d\d:\d\d(?:\.\d*)?` +
	`(?:[ \t]*(?:Z|[-+]\d\d?(?::\d\d)?))?)$`)

type textStyle struct{ plain, single, multiline bool }

func isBreak(r rune) bool { return r == '\n' || r == 0x85 || r == 0x2028 || r == 0x2029 }
func isBlank(r rune) bool { return r == 0 || r == ' ' || r == '\t' || r == '\r' || isBreak(r) }

// analyze decides, as PyYAML's emitter does, in which styles a block scalar may be written.
func analyze(s []rune) textStyle {
	if len(s) == 0 {
		return textStyle{plain: true, single: true}
	}
	a := textStyle{plain: true, single: true}
	text := string(s[:min(3, len(s))])
	if text == "---" || text == "..." {
		a.plain = false
	}
	blankBefore, prevSpace, prevBreak := true, false, false
	for i, r := range s {
		blankAfter := i+1 >= len(s) || isBlank(s[i+1])
		switch {
		case i == 0 && strings.ContainsRune("#,[]{}&*!|>'\"%@`", r),
			i == 0 && strings.ContainsRune("?:-", r) && blankAfter,
			i > 0 && r == ':' && blankAfter,
			i > 0 && r == '#' && blankBefore:
			a.plain = false
		}
		printable := r == '\n' || r >= 0x20 && r <= 0x7e || r == 0x85 || r >= 0xa0 && r <= 0xd7ff ||
			r >= 0xe000 && r <= 0xfffd && r != 0xfeff || r >= 0x10000 && r < 0x10ffff
		if !printable {
			a.plain, a.single = false, false
		}
		edge := i == 0 || i == len(s)-1
		switch {
		case r == ' ':
			if edge {
				a.plain = false
			}
			if prevBreak {
				a.plain, a.single = false, false
			}
			prevSpace, prevBreak = true, false
		case isBreak(r):
			a.plain, a.multiline = false, true
			if prevSpace {
				a.single = false
			}
			prevSpace, prevBreak = false, true
		default:
			prevSpace, prevBreak = false, false
		}
		blankBefore = isBlank(r)
	}
	return a
}

func (w *yamlWriter) plain(s []rune, indent int, split bool) {
	start, spaces := 0, false
	for end := 0; end <= len(s); end++ {
		atSpace := end < len(s) && s[end] == ' '
		switch {
		case spaces && !atSpace:
			if start+1 == end && w.col > bestWidth && split {
				w.indent(indent)
			} else {
				w.put(string(s[start:end]))
			}
			start = end
		case !spaces && (end == len(s) || atSpace):
			w.put(string(s[start:end]))
			start = end
		}
		spaces = atSpace
	}
}

func (w *yamlWriter) single(s []rune, indent int, split bool) {
	w.put("'")
	start, spaces, breaks := 0, false, false
	for end := 0; end <= len(s); end++ {
		r := rune(-1)
		if end < len(s) {
			r = s[end]
		}
		switch {
		case spaces:
			if r != ' ' {
				if start+1 == end && w.col > bestWidth && split && start != 0 && end != len(s) {
					w.indent(indent)
				} else {
					w.put(string(s[start:end]))
				}
				start = end
			}
		case breaks:
			if !isBreak(r) {
				if s[start] == '\n' {
					w.newline()
				}
				for _, br := range s[start:end] {
					if br == '\n' {
						w.newline()
					} else {
						w.b.WriteRune(br)
						w.col = 0
					}
				}
				w.indent(indent)
				start = end
			}
		case r < 0 || r == ' ' || r == '\'' || isBreak(r):
			w.put(string(s[start:end]))
			start = end
		}
		if r == '\'' {
			w.put("''")
			start = end + 1
		}
		spaces, breaks = r == ' ', isBreak(r)
	}
	w.put("'")
}

// yamlEscape is the escape sequence of a character in double quotes.
func yamlEscape(r rune) string {
	const from, to = "\x00\a\b\t\n\v\f\r\x1b\"\\\u0085\u00a0\u2028\u2029", `0abtnvfre"\N_LP`
	if i := strings.IndexRune(from, r); i >= 0 {
		return `\` + to[len([]rune(from[:i])):][:1]
	}
	switch {
	case r <= 0xff:
		return fmt.Sprintf(`\x%02X`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04X`, r)
	}
	return fmt.Sprintf(`\U%08X`, r)
}

func (w *yamlWriter) double(s []rune, indent int, split bool) {
	w.put(`"`)
	start := 0
	for end := 0; end <= len(s); end++ {
		r := rune(-1)
		if end < len(s) {
			r = s[end]
		}
		safe := r >= 0x20 && r <= 0x7e && r != '"' && r != '\\' ||
			r >= 0xa0 && r <= 0xd7ff && r != 0x2028 && r != 0x2029 ||
			r >= 0xe000 && r <= 0xfffd && r != 0xfeff
		if !safe {
			if start < end {
				w.put(string(s[start:end]))
				start = end
			}
			if r >= 0 {
				w.put(yamlEscape(r))
				start = end + 1
			}
		}
		if end > 0 && end < len(s)-1 && (r == ' ' || start >= end) && w.col+(end-start) > bestWidth && split {
			if start < end {
				w.put(string(s[start:end]))
				start = end
			}
			w.put(`\`)
			w.indent(indent)
			if s[start] == ' ' {
				w.put(`\`)
			}
		}
	}
	w.put(`"`)
}
