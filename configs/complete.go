package configs

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Complete lists what can follow a word of the command line: groups (model=, model/), options
// (model=x), keys (trainer., lr=) and, behind lr=, the current value. When req does not compose only
// groups are offered.
func Complete(req Request, word string) []string {
	prefix := word[:len(word)-len(strings.TrimLeft(word, "+~"))]
	word = word[len(prefix):]
	req.Multirun = true
	c, err := NewComposer(req)
	if err != nil {
		req.Overrides = nil
		if c, err = NewComposer(req); err != nil {
			return nil
		}
	}
	var out []string
	add := func(s string) {
		if strings.HasPrefix(s, word) {
			out = append(out, prefix+s)
		}
	}
	if key, value, ok := strings.Cut(word, "="); ok {
		if strings.HasPrefix(value, "/") || strings.HasPrefix(value, "./") {
			for _, f := range files(value) {
				add(key + "=" + f)
			}
			return out
		}
		if group, _, _ := strings.Cut(key, "@"); c.lib.group(group) {
			options, err := c.lib.list(group, false)
			if err != nil {
				return nil
			}
			for _, o := range options {
				add(key + "=" + o)
			}
			return out
		}
	} else {
		c.completeGroups(word, add)
	}
	if m, err := c.Compose(); err == nil {
		completeKeys(m.tree, word, add)
	}
	sort.Strings(out)
	return out
}

// completeGroups offers the groups below the last slash of word.
func (c *Composer) completeGroups(word string, add func(string)) {
	dir, _ := splitDir(word)
	subs, err := c.lib.list(dir, true)
	if err != nil {
		return
	}
	for _, g := range subs {
		if dir == "" && g == "hydra" {
			add("hydra/")
			continue
		}
		g = join(dir, g)
		if options, err := c.lib.list(g, false); err == nil && len(options) > 0 {
			add(g + "=")
		}
		if deeper, err := c.lib.list(g, true); err == nil && len(deeper) > 0 {
			add(g + "/")
		}
	}
}

// completeKeys offers the keys at the level of the last dot, and the value behind an equals sign.
func completeKeys(root *Node, word string, add func(string)) {
	if key, _, ok := strings.Cut(word, "="); ok {
		if n := root.Find(key); n != nil && !n.container() {
			add(key + "=" + scalarOf(n).reprint())
		}
		return
	}
	dir := ""
	if i := strings.LastIndexByte(word, '.'); i >= 0 {
		dir = word[:i+1]
	}
	n := root
	if dir != "" {
		n = root.Find(strings.TrimSuffix(dir, "."))
	}
	if n == nil || !n.container() {
		return
	}
	for i, v := range n.Vals {
		name := itoa(i)
		if n.Kind == Map {
			name = n.Keys[i].Text
		}
		if v.container() {
			add(dir + name + ".")
		} else {
			add(dir + name + "=")
		}
	}
}

// files lists the files and folders that a path could become.
func files(path string) []string {
	matches, err := filepath.Glob(path + "*")
	if err != nil {
		return nil
	}
	for i, m := range matches {
		if strings.HasPrefix(path, "./") && !strings.HasPrefix(m, "./") {
			matches[i] = "./" + m
		}
		if info, err := os.Stat(m); err == nil && info.IsDir() {
			matches[i] += "/"
		}
	}
	return matches
}
