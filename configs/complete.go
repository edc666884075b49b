package configs

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Complete lists what can become of a word that is being typed on the command line, sorted: groups
// (model=, model/), options (model=x, also as the next of a sweep model=x,y or of a list model=[x,y]),
// keys (trainer., lr=), and behind lr= what the schema allows, the current value and files. A prefix
// + ++ ~ stays. When req does not compose only groups are offered.
func Complete(req Request, word string) []string {
	bare := strings.TrimLeft(word, "+~")
	l := &completions{prefix: word[:len(word)-len(bare)], word: bare}
	c := completer(req)
	if c == nil {
		return nil
	}
	key, value, valued := strings.Cut(bare, "=")
	switch {
	case !valued:
		c.completeGroups(l)
		if m, _ := c.Compose(); m != nil { // nil where what is typed cannot be composed at all; what the schema faults is forgiven
			completeKeys(m.tree, l)
		}
	case isPath(value):
		l.files(key+"=", value)
	default:
		done := key + "=" + value[:strings.LastIndexAny(value, ",[(")+1] // the choices before the one being typed
		if group, _, _ := strings.Cut(key, "@"); c.lib.group(group) {
			options, err := c.lib.list(group, false)
			if err != nil {
				return nil
			}
			for _, o := range options {
				l.add(done + o)
			}
			break
		}
		for _, v := range c.valuesOf(key) {
			l.add(done + v)
		}
		if len(l.out) == 0 && value != "" {
			l.files(key+"=", value)
		}
	}
	return l.sorted()
}

// CompleteKey lists the keys and sections of a config that word can become, for --package and explain.
func CompleteKey(req Request, word string) []string {
	l := &completions{word: word, bareKeys: true}
	if c := completer(req); c != nil {
		if m, _ := c.Compose(); m != nil {
			completeKeys(m.tree, l)
		}
	}
	return l.sorted()
}

// CompleteConfig lists the config names that word can become, for --config-name.
func CompleteConfig(req Request, word string) []string {
	l := &completions{word: word}
	if c := completer(req); c != nil {
		dir, _ := splitDir(word)
		configs, _ := c.lib.list(dir, false) // none of a folder that cannot be read
		groups, _ := c.lib.list(dir, true)
		for _, name := range configs {
			l.add(join(dir, name))
		}
		for _, name := range groups {
			l.add(join(dir, name) + "/")
		}
	}
	return l.sorted()
}

// CompleteFile lists the files and folders that word can become.
func CompleteFile(word string) []string {
	l := &completions{}
	l.files("", word)
	return l.sorted()
}

// completions collects the candidates that begin with word.
type completions struct {
	prefix, word string
	bareKeys     bool // keys without an equals sign
	out          []string
}

func (l *completions) add(s string) {
	if strings.HasPrefix(s, l.word) && !strings.ContainsAny(s, " \t\n") { // the shells split the reply at blanks
		l.out = append(l.out, l.prefix+s)
	}
}

func (l *completions) sorted() []string {
	slices.Sort(l.out)
	return slices.Compact(l.out)
}

// completer opens the search path of a request; what is wrong with its overrides does not matter here.
func completer(req Request) *Composer {
	req.Multirun = true
	c, err := NewComposer(req)
	if err != nil {
		req.Overrides = nil
		if c, err = NewComposer(req); err != nil {
			return nil
		}
	}
	return c
}

// completeGroups offers the groups below the last slash.
func (c *Composer) completeGroups(l *completions) {
	dir, _ := splitDir(l.word)
	subs, err := c.lib.list(dir, true)
	if err != nil {
		return
	}
	for _, g := range subs {
		if dir == "" && g == "hydra" {
			l.add("hydra/")
			continue
		}
		g = join(dir, g)
		if options, err := c.lib.list(g, false); err == nil && len(options) > 0 {
			l.add(g + "=")
			if l.prefix == "~" {
				l.add(g)
			}
		}
		if deeper, err := c.lib.list(g, true); err == nil && len(deeper) > 0 {
			l.add(g + "/")
		}
	}
}

// completeKeys offers the keys at the level of the last dot.
func completeKeys(root *Node, l *completions) {
	dir := l.word[:strings.LastIndexByte(l.word, '.')+1]
	n := root.Find(strings.TrimSuffix(dir, "."))
	if n == nil || !n.container() {
		return
	}
	for i, v := range n.Vals {
		name := dir + n.keyAt(i)
		if v.container() {
			l.add(name + ".")
		}
		if l.bareKeys || l.prefix == "~" {
			l.add(name)
		} else if !v.container() {
			l.add(name + "=")
		}
	}
}

// valuesOf lists values for a key: its enum, true and false, null where it may be, and what it has now.
func (c *Composer) valuesOf(key string) []string {
	var out []string
	f := (*field)(nil)
	switch {
	case strings.HasPrefix(key, "hydra."):
		f = c.hydraCheck.find(strings.TrimPrefix(key, "hydra."))
	case c.req.Schema != nil:
		f = c.req.Schema.find(key)
	}
	if f != nil {
		if f.kind == List && f.elem != nil {
			f = f.elem
		}
		out = append(out, f.enum...)
		if f.kind == Bool {
			out = append(out, "true", "false")
		}
		if f.nullable && len(out) > 0 {
			out = append(out, "null")
		}
	}
	m, _ := c.Compose()
	if m == nil {
		return out
	}
	n := m.tree.Find(key)
	switch {
	case n == nil || n.container():
	case n.Kind == Bool:
		out = append(out, strings.ToLower(n.pyStr()))
	case n.isMissing(): // ??? is no value to keep
	default:
		out = append(out, scalarOf(n).reprint())
	}
	return out
}

// isPath reports whether a value is typed as a path.
func isPath(s string) bool {
	head, _, slash := strings.Cut(s, "/")
	return head == "." || head == ".." || slash && (head == "" || head == "~")
}

// files offers the files and folders that path could become, behind head.
func (l *completions) files(head, path string) {
	dir, base := filepath.Split(path)
	real := dir
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			real = filepath.Join(home, rest)
		}
	}
	entries, err := os.ReadDir(cmp.Or(real, "."))
	if err != nil {
		return
	}
	l.word = ""
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" {
			continue
		}
		tail := ""
		if info, err := os.Stat(filepath.Join(real, name)); err == nil && info.IsDir() {
			tail = "/"
		}
		l.add(head + dir + name + tail)
	}
	if base == "." || base == ".." {
		l.add(head + path + "/")
	}
}
