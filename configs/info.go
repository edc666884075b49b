package configs

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"fulcrum/internal/list"
)

// Info prints what --info asks for, in Hydra's layout: plugins, searchpath, defaults, defaults-tree,
// config (the last three and the job config) or all.
func (c *Composed) Info(which string) (string, error) {
	var b strings.Builder
	switch which {
	case "all":
		title(&b, "Hydra "+hydraVersion, "=")
		c.infoPlugins(&b)
		if err := c.infoConfig(&b); err != nil {
			return "", err
		}
	case "config":
		if err := c.infoConfig(&b); err != nil {
			return "", err
		}
	case "plugins":
		c.infoPlugins(&b)
	case "searchpath":
		c.infoSearchPath(&b)
	case "defaults":
		c.infoDefaults(&b)
	case "defaults-tree":
		c.infoTree(&b)
	default:
		return "", errorf("--info %s: want all, config, defaults, defaults-tree, plugins or searchpath", which)
	}
	return b.String(), nil
}

func (c *Composed) infoConfig(b *strings.Builder) error {
	c.infoSearchPath(b)
	c.infoTree(b)
	c.infoDefaults(b)
	title(b, "Config", "*")
	text, err := c.YAML("job", false, "")
	b.WriteString(text + "\n")
	return err
}

func title(b *strings.Builder, s, rule string) {
	b.WriteString(s + "\n" + strings.Repeat(rule, len(s)) + "\n")
}

// table prints aligned columns between bars, with rules below the head and at the end. tail follows the head.
func table(b *strings.Builder, rows [][]string, tail string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, s := range r {
			width[i] = max(width[i], utf8.RuneCountInString(s))
		}
	}
	rule := strings.Repeat("-", 1+len(tail)+list.Sum(width, func(w int) int { return w + 3 })) + "\n"
	for i, r := range rows {
		for j, s := range r {
			fmt.Fprintf(b, "| %-*s ", width[j], s)
		}
		if i > 0 {
			b.WriteString("|\n")
			continue
		}
		b.WriteString("|" + tail + "\n" + rule)
	}
	b.WriteString(rule)
}

// infoPlugins lists what Hydra has plugins for.
func (c *Composed) infoPlugins(b *strings.Builder) {
	title(b, "Installed Hydra Plugins", "*")
	list := func(name string, items []string) {
		b.WriteString("\t" + name + ":\n\t" + strings.Repeat("-", len(name)+1) + "\n")
		for _, s := range items {
			b.WriteString("\t\t" + s + "\n")
		}
	}
	list("ConfigSource", []string{"file://", "pkg://"})
	list("CompletionPlugin", []string{"bash", "fish", "zsh"})
	for _, g := range []struct{ name, group string }{{"Launcher", "hydra/launcher"}, {"Sweeper", "hydra/sweeper"}} {
		if options, err := c.composer.lib.list(g.group, false); err == nil {
			list(g.name, options)
		}
	}
}

func (c *Composed) infoSearchPath(b *strings.Builder) {
	b.WriteString("\n")
	title(b, "Config search path", "*")
	rows := list.Map(c.composer.lib.sources, func(s *source) []string { return []string{s.provider, s.path} })
	table(b, append([][]string{{"Provider", "Search path"}}, rows...), "")
}

func (c *Composed) infoDefaults(b *strings.Builder) {
	b.WriteString("\n")
	title(b, "Defaults List", "*")
	rows := list.Map(c.base.list, func(d content) []string { return []string{d.file.name, d.pkg, newBool(d.self).pyStr(), d.parent} })
	table(b, append([][]string{{"Config path", "Package", "_self_", "Parent"}}, rows...), " ")
}

func (c *Composed) infoTree(b *strings.Builder) {
	b.WriteString("\n")
	title(b, "Defaults Tree", "*")
	b.WriteString(rootName + ":\n")
	var walk func(n *treeNode, indent string)
	walk = func(n *treeNode, indent string) {
		name := n.item.describe()
		if !n.item.isGroup() && !n.item.self {
			name = n.item.configPath()
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
