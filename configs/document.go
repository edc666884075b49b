package configs

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Markdown is the reference of all keys: a table for each section with key, type, default and help. A key that means the same in
// several sections stands in the table of the first; the others refer to it.
func (s *Schema) Markdown() string {
	var b strings.Builder
	d := documenter{&b, s.defaults.tree, map[string]string{}}
	d.section(s.root, s.defaults.tree)
	return b.String()
}

// documenter writes the tables.
type documenter struct {
	*strings.Builder
	all  *Node             // defaults
	seen map[string]string // a key's last name, type and meaning: the section whose table has it
}

// shared returns the section whose table has a key already; "": none. It is in the table of f from now on.
func (d documenter) shared(f, c *field) string {
	at := c.key + "\n" + c.want() + "\n" + c.help()
	if d.seen[at] == "" {
		d.seen[at] = f.path
		return ""
	}
	return d.seen[at]
}

// section documents a section, below it those that it holds.
func (d documenter) section(f *field, defaults *Node) {
	b := d.Builder
	var plain, sections []*field
	elsewhere, order := map[string][]*field{}, []string{}
	for _, c := range f.fields {
		if c.index == nil && !c.apart() || c.member.Tag.Get("constant") != "" { // kind; another program's key
			continue
		}
		if len(c.fields) > 0 && c.elem == nil {
			sections = append(sections, c)
		} else if of := d.shared(f, c); of == "" {
			plain = append(plain, c)
		} else {
			if elsewhere[of] == nil {
				order = append(order, of)
			}
			elsewhere[of] = append(elsewhere[of], c)
		}
	}
	if len(plain)+len(order) > 0 {
		name := "`" + f.path + "`"
		if f.path == "" {
			name = "Top level"
		}
		b.WriteString("## " + name + "\n\n")
		if f.help() != "" {
			b.WriteString(prose(upperFirst(f.help())) + ".\n\n")
		}
		if len(plain) > 0 {
			b.WriteString("| Key | Type | Default | Meaning |\n|---|---|---|---|\n")
		}
		for _, c := range plain {
			value := ""
			if n := defaults.Get(c.key); n != nil {
				value = "`" + cell(oneLine(n)) + "`"
			}
			b.WriteString("| `" + c.path + "` | " + cell(c.want()) + " | " + value + " | " + cell(prose(c.help())) + " |\n")
		}
		if len(plain) > 0 {
			b.WriteString("\n")
		}
		for _, of := range order {
			d.refer(elsewhere[of], of, defaults)
		}
	}
	for _, c := range sections {
		if model := f.sub(c.of); model != nil && c.path != c.of { // of a further section; one named as its kind has the table
			b.WriteString("## `" + c.path + "`\n\n" + prose(upperFirst(c.help())) + ". The keys are those of `" + c.of + "`, with other defaults: " +
				strings.Join(otherDefaults(defaults.Get(c.key), defaults.Get(c.of), c.path), ", ") + ".\n\n")
			continue
		}
		d.section(c, defaults.Get(c.key))
	}
}

// refer says that keys mean what those of another section do, and where their defaults are others.
func (d documenter) refer(keys []*field, of string, defaults *Node) {
	var names, others []string
	there := d.all.findPath(splitPath(of))
	for _, c := range keys {
		names = append(names, "`"+c.key+"`")
		if n, was := defaults.Get(c.key), there.Get(c.key); n != nil && (was == nil || !n.equal(was)) {
			others = append(others, "`"+c.path+": "+oneLine(n)+"`")
		}
	}
	d.WriteString("As in `" + of + "`: " + strings.Join(names, ", "))
	if len(others) > 0 {
		d.WriteString("; with other defaults: " + strings.Join(others, ", "))
	}
	d.WriteString(".\n\n")
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
