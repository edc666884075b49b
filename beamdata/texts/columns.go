package texts

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/registry"
)

// columns are the names under which a file keeps its parts. id may be "".
type columns struct{ source, target, id string }

func (c columns) names() []string {
	if c.id == "" {
		return []string{c.source, c.target}
	}
	return []string{c.source, c.target, c.id}
}

// pairs are the columns of the customary data sets, tried in this order.
func pairs() [][2]string {
	return [][2]string{
		{"source", "target"}, {"document", "summary"}, {"article", "highlights"}, {"text", "summary"}, {"dialogue", "summary"},
	}
}

// choose finds the columns among those that a file has. A name that was given must be there.
func (o Options) choose(has []string) (columns, error) {
	var c columns
	for _, want := range []struct {
		key  string
		name *string
		into *string
	}{{"source", o.Source, &c.source}, {"target", o.Target, &c.target}, {"id", o.ID, &c.id}} {
		if want.name == nil {
			continue
		}
		if !slices.Contains(has, *want.name) {
			return c, fmt.Errorf("data.texts.%s: %w", want.key, registry.Unknown("column", *want.name, has))
		}
		*want.into = *want.name
	}
	if c.id == "" && slices.Contains(has, "id") {
		c.id = "id"
	}
	if c.source != "" && c.target != "" {
		return c, nil
	}
	for _, p := range pairs() {
		fits := (c.source == "" || c.source == p[0]) && (c.target == "" || c.target == p[1])
		if fits && slices.Contains(has, p[0]) && slices.Contains(has, p[1]) {
			c.source, c.target = p[0], p[1]
			return c, nil
		}
	}
	switch {
	case c.source != "":
		return c, fmt.Errorf("no column known to be the target of %s among %s: name it by data.texts.target", c.source,
			strings.Join(has, ", "))
	case c.target != "":
		return c, fmt.Errorf("no column known to be the source of %s among %s: name it by data.texts.source", c.target,
			strings.Join(has, ", "))
	}
	return c, fmt.Errorf("no known pair of columns among %s: name them by data.texts.source and data.texts.target", strings.Join(has, ", "))
}
