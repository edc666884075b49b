package configs

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// JobsYAML prints the jobs of a sweep: a YAML list of override lists.
func JobsYAML(jobs [][]string) string {
	return newList(list.Map(jobs, func(job []string) *Node { return newList(list.Map(job, plainString)...) })...).YAML()
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

// Group is a config group with its options.
type Group struct {
	Name    string
	Options []string
}

func (c *Composed) Groups() ([]Group, error) { return c.groups(false) }

// groups lists those of the application, or Hydra's.
func (c *Composed) groups(hydra bool) ([]Group, error) {
	prefix := ""
	if hydra {
		prefix = "hydra"
	}
	names, options, err := c.composer.lib.allGroups(prefix)
	var out []Group
	for _, g := range names {
		if isHydra := g == "hydra" || strings.HasPrefix(g, "hydra/"); isHydra == hydra && g != "hydra" {
			out = append(out, Group{g, options[g]})
		}
	}
	return out, err
}

func (c *Composed) fillTemplate(path, flags, config string) (string, error) {
	t, err := c.hydraValue(path)
	if err != nil {
		return "", err
	}
	if t == nil {
		return "", errorf("hydra.%s is not set", path)
	}
	values := map[string]string{"FLAGS_HELP": flags, "CONFIG": config}
	for name, hydra := range map[string]bool{"HYDRA_CONFIG_GROUPS": true, "APP_CONFIG_GROUPS": false} {
		groups, err := c.groups(hydra)
		if err != nil {
			return "", err
		}
		values[name] = ""
		for _, g := range groups {
			values[name] += g.Name + ": " + strings.Join(g.Options, ", ") + "\n"
		}
	}
	text, err := fill(t.pyStr(), values)
	if err != nil {
		return "", errorAt(t.Origin, "hydra.%s: %v", path, err)
	}
	return strings.TrimRight(text, "\n") + "\n", nil
}

// variable is $NAME, ${NAME} or $$, or a dollar sign that begins none of them.
var variable = regexp.MustCompile(`\$(?:\$|\{[^}]*\}?|\w*)`)

// fill replaces $NAME and ${NAME} in a template, and $$ by $.
func fill(template string, values map[string]string) (text string, err error) {
	text = variable.ReplaceAllStringFunc(template, func(found string) string {
		name := strings.Trim(found[1:], "{}")
		value, ok := values[name]
		if name == "$" {
			return name
		}
		if !ok {
			names := list.Map(slices.Sorted(maps.Keys(values)), func(k string) string { return "$" + k })
			err = errorf("unknown $%s%s: want one of %s, or $$ for $", name, didYouMean("$"+name, names), strings.Join(names, ", "))
		}
		return value
	})
	return text, err
}
