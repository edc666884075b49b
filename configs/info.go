package configs

import (
	"fmt"
	"strings"
)

// Info prints what --info asks for: config, defaults, defaults-tree, plugins, searchpath or all.
func (c *Composed) Info(which string) (string, error) {
	var b strings.Builder
	show := func(name string) bool { return which == name || which == "all" }
	if show("plugins") {
		c.infoPlugins(&b)
	}
	if show("searchpath") {
		c.infoSearchPath(&b)
	}
	if show("defaults-tree") {
		title(&b, "Defaults Tree")
		c.infoTree(&b)
	}
	if show("defaults") {
		c.infoDefaults(&b)
	}
	if show("config") {
		title(&b, "Config")
		text, err := c.YAML("all", false, "")
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	if b.Len() == 0 {
		return "", errorf("--info %s: want all, config, defaults, defaults-tree, plugins or searchpath", which)
	}
	return b.String(), nil
}

func title(b *strings.Builder, s string) {
	b.WriteString("\n" + s + "\n" + strings.Repeat("*", len(s)) + "\n")
}

// table prints aligned columns between bars.
func table(b *strings.Builder, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, s := range r {
			width[i] = max(width[i], len(s))
		}
	}
	rule := 1
	for _, w := range width {
		rule += w + 3
	}
	for i, r := range rows {
		for j, s := range r {
			fmt.Fprintf(b, "| %-*s ", width[j], s)
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("-", rule) + "\n")
		}
	}
}

func (c *Composed) infoPlugins(b *strings.Builder) {
	title(b, "Plugins")
	for _, g := range []string{"launcher", "sweeper"} {
		options, err := c.composer.lib.list("hydra/"+g, false)
		if err == nil {
			b.WriteString("hydra/" + g + ": " + strings.Join(options, ", ") + "\n")
		}
	}
}

func (c *Composed) infoSearchPath(b *strings.Builder) {
	title(b, "Config search path")
	rows := [][]string{{"Provider", "Search path"}}
	for _, s := range c.composer.lib.sources {
		rows = append(rows, []string{s.provider, s.path})
	}
	table(b, rows)
}

func (c *Composed) infoDefaults(b *strings.Builder) {
	title(b, "Defaults List")
	rows := [][]string{{"Config path", "Package", "_self_", "Parent"}}
	for _, d := range c.base.list {
		self := "False"
		if d.self {
			self = "True"
		}
		rows = append(rows, []string{d.file.name, d.pkg, self, d.parent})
	}
	table(b, rows)
}

func (c *Composed) infoTree(b *strings.Builder) {
	b.WriteString("<root>:\n")
	var walk func(n *treeNode, indent string)
	walk = func(n *treeNode, indent string) {
		if n.item.deleted {
			return
		}
		name := n.item.describe()
		if n.item.isGroup() {
			name = n.item.groupPath() + ": " + n.item.name
			if n.item.isNull {
				name = n.item.groupPath() + ": null"
			}
		}
		if len(n.children) > 0 {
			name += ":"
		}
		b.WriteString(indent + name + "\n")
		for _, ch := range n.children {
			walk(ch, indent+"  ")
		}
	}
	for _, n := range c.base.root.children {
		walk(n, "  ")
	}
}
