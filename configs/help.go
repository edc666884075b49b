package configs

import (
	"strings"
)

// JobsYAML prints the jobs of a sweep: a YAML list of override lists.
func JobsYAML(jobs [][]string) string {
	n := newList()
	for _, j := range jobs {
		n.Vals = append(n.Vals, stringList(j))
	}
	return n.toYAML()
}

// Mode is hydra.mode: RUN, MULTIRUN or "".
func (c *Composed) Mode() string {
	if n := c.tree.Find("hydra.mode"); n != nil && n.Kind == String {
		return n.Text
	}
	return ""
}

// Help fills in hydra.help.template.
func (c *Composed) Help(flags string, resolve bool) (string, error) {
	text, err := c.YAML("job", resolve, "")
	if err != nil {
		return "", err
	}
	return c.fillTemplate("help.template", flags, text)
}

// HydraHelp fills in hydra.hydra_help.template.
func (c *Composed) HydraHelp(flags string) (string, error) {
	return c.fillTemplate("hydra_help.template", flags, "")
}

func (c *Composed) fillTemplate(path, flags, config string) (string, error) {
	t, err := c.hydraValue(path)
	if err != nil {
		return "", err
	}
	if t == nil {
		return "", errorf("hydra.%s is not set", path)
	}
	var faults error
	groups := func(hydra bool) string {
		prefix := ""
		if hydra {
			prefix = "hydra"
		}
		names, options, err := c.composer.lib.allGroups(prefix)
		if err != nil {
			faults = err
		}
		var lines []string
		for _, g := range names {
			if isHydra := g == "hydra" || strings.HasPrefix(g, "hydra/"); isHydra == hydra && g != "hydra" {
				lines = append(lines, g+": "+strings.Join(options[g], ", "))
			}
		}
		return strings.Join(lines, "\n")
	}
	out := t.pyStr()
	for _, v := range []struct {
		name string
		text func() string
	}{
		{"$FLAGS_HELP", func() string { return flags }},
		{"$HYDRA_CONFIG_GROUPS", func() string { return groups(true) }},
		{"$APP_CONFIG_GROUPS", func() string { return groups(false) }},
		{"$CONFIG", func() string { return config }},
	} {
		if strings.Contains(out, v.name) {
			out = strings.ReplaceAll(out, v.name, v.text())
		}
	}
	return strings.TrimRight(out, "\n") + "\n", faults
}
