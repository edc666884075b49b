package configs

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"fulcrum/internal/list"
)

// Markdown documents every key in tables: the keys of first in one of their own, which comes first, the others by section.
func (s *Schema) Markdown(first ...string) string {
	var b strings.Builder
	d := documenter{&b, s.defaults.tree, map[string]row{}}
	if len(first) > 0 {
		d.head()
	}
	for _, path := range first {
		c := s.root
		for _, key := range splitPath(path) {
			c = c.sub(key)
		}
		d.seen[meaning(c)] = row{path, ""}
		d.row(c, s.defaults.tree.Find(path))
	}
	if len(first) > 0 {
		b.WriteString("\n")
	}
	d.section(s.root, s.defaults.tree)
	return b.String()
}

// documenter writes the tables.
type documenter struct {
	*strings.Builder
	all  *Node          // defaults
	seen map[string]row // by a key's last name, type and meaning
}

// row is where a key stands in a table: of a section, or of the first page ("").
type row struct{ path, section string }

// meaning is equal for keys that one row can explain.
func meaning(c *field) string { return c.key + "\n" + c.want() + "\n" + c.help() }

func (d documenter) head() { d.WriteString("Key | Default | Meaning\n---|---|---\n") }

func (d documenter) row(c *field, value *Node) {
	d.WriteString("`" + c.path + "` | " + cell(c.values(value)) + " | " + cell(prose(c.help())) + "\n")
}

// section documents a section, below it those that it holds.
func (d documenter) section(f *field, defaults *Node) {
	var plain, sections []*field
	elsewhere, order := map[string][]*field{}, []string{}
	for _, c := range f.fields {
		if c.index == nil && !c.apart() || c.member.Tag.Get("constant") != "" { // kind; another program's key
			continue
		}
		at, known := d.seen[meaning(c)]
		switch {
		case len(c.fields) > 0 && c.elem == nil:
			sections = append(sections, c)
		case !known:
			d.seen[meaning(c)] = row{c.path, f.path}
			plain = append(plain, c)
		default:
			if elsewhere[at.section] == nil {
				order = append(order, at.section)
			}
			elsewhere[at.section] = append(elsewhere[at.section], c)
		}
	}
	if f.path != "" && len(plain)+len(order) > 0 {
		d.WriteString("## `" + f.path + "`\n\n")
		if f.help() != "" {
			d.WriteString(prose(upperFirst(f.help())) + ".\n\n")
		}
	}
	if len(plain) > 0 {
		d.head()
		for _, c := range plain {
			d.row(c, defaults.Get(c.key))
		}
		d.WriteString("\n")
	}
	if f.path != "" {
		for _, section := range order {
			d.refer(elsewhere[section], section, defaults)
		}
	}
	for _, c := range sections {
		if model := f.sub(c.of); model != nil && c.path != c.of { // of a further section; one named as its kind has the table
			d.WriteString("## `" + c.path + "`\n\n" + prose(upperFirst(c.help())) + ". The keys are those of `" + c.of + "`, with other defaults: " +
				strings.Join(otherDefaults(defaults.Get(c.key), defaults.Get(c.of), c.path), ", ") + ".\n\n")
			continue
		}
		d.section(c, defaults.Get(c.key))
	}
}

// refer says that keys mean what those of another section, or of the first page, do, and where their defaults are others.
func (d documenter) refer(keys []*field, section string, defaults *Node) {
	var names, others []string
	for _, c := range keys {
		names = append(names, "`"+c.key+"`")
		n, was := defaults.Get(c.key), d.all.Find(d.seen[meaning(c)].path)
		if n != nil && (was == nil || !n.equal(was)) {
			others = append(others, "`"+c.key+": "+oneLine(n)+"`")
		}
	}
	where := "As above: "
	if section != "" {
		where = "As `" + section + "`: "
	}
	d.WriteString(where + strings.Join(names, ", "))
	if len(others) > 0 {
		d.WriteString("; default " + strings.Join(others, ", "))
	}
	d.WriteString(".\n\n")
}

// longestDefault is how many characters of a default stand in a table: a prompt is as long as a page.
const longestDefault = 60

// values shows a key's default and what else it takes. The type is that of the default; of null it is named.
func (f *field) values(value *Node) string {
	if value == nil {
		return ""
	}
	text := oneLine(value)
	if r := []rune(text); len(r) > longestDefault {
		text = string(r[:longestDefault]) + "…"
	}
	out := "`" + strings.ReplaceAll(text, "\n", " ") + "`"
	switch {
	case f.enum != nil && f.kind == String:
		choices := append([]string{text}, list.Filter(f.enum, func(name string) bool { return name != value.Text })...)
		out = "`" + strings.Join(choices, "|") + "`"
	case f.kind == List && len(value.Vals) == 0 || f.kind != List && f.kind != Map && value.Kind == Null:
		of := *f
		of.nullable, of.rng = false, nil
		out += ", " + strings.TrimPrefix(strings.TrimPrefix(of.want(), "an "), "a ")
	}
	if f.rng != nil && f.kind != List && f.kind != Map {
		out += f.rng.Short()
	}
	return out
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
