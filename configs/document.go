package configs

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Markdown is the reference of all keys: a table for each section with key, type, default and help.
func (s *Schema) Markdown() string {
	var b strings.Builder
	s.root.document(&b, s.defaults.tree)
	return b.String()
}

func (f *field) document(b *strings.Builder, defaults *Node) {
	var plain, sections []*field
	for _, c := range f.fields {
		if c.index == nil && !c.apart() { // kind
			continue
		}
		if len(c.fields) > 0 && c.elem == nil {
			sections = append(sections, c)
		} else {
			plain = append(plain, c)
		}
	}
	if len(plain) > 0 {
		name := "`" + f.path + "`"
		if f.path == "" {
			name = "Top level"
		}
		b.WriteString("## " + name + "\n\n")
		if f.help() != "" {
			b.WriteString(prose(upperFirst(f.help())) + ".\n\n")
		}
		b.WriteString("| Key | Type | Default | Meaning |\n|---|---|---|---|\n")
		for _, c := range plain {
			d := ""
			if n := defaults.Get(c.key); n != nil {
				d = "`" + cell(oneLine(n)) + "`"
			}
			b.WriteString("| `" + c.path + "` | " + cell(c.want()) + " | " + d + " | " + cell(prose(c.help())) + " |\n")
		}
		b.WriteString("\n")
	}
	for _, c := range sections {
		if model := f.sub(c.of); model != nil && c.path != c.of { // of a further section; one named as its kind has the table
			b.WriteString("## `" + c.path + "`\n\n" + prose(upperFirst(c.help())) + ". The keys are those of `" + c.of + "`, with other defaults: " +
				strings.Join(otherDefaults(defaults.Get(c.key), defaults.Get(c.of), c.path), ", ") + ".\n\n")
			continue
		}
		c.document(b, defaults.Get(c.key))
	}
}

// otherDefaults lists key: value of n where another section of the same kind has another value.
func otherDefaults(n, other *Node, path string) []string {
	var out []string
	for i, k := range n.Keys {
		v, was := n.Vals[i], other.Get(k.Text)
		if v.Kind == Map && was.Kind == Map {
			out = append(out, otherDefaults(v, was, path+"."+k.Text)...)
		} else if !v.equal(was) {
			out = append(out, "`"+path+"."+k.Text+": "+oneLine(v)+"`")
		}
	}
	return out
}

// prose keeps tags that a text is about, such as <think>, from being taken for HTML.
func prose(s string) string { return strings.ReplaceAll(s, "<", `\<`) }

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:]
}
