// Package configs composes configuration the way Hydra does: YAML files in groups, a defaults list
// that picks them, overrides from the command line, interpolation, and sweeps. On top of that it
// types a config by option structs (Schema) and names the file, line and column of every fault.
//
// It knows nothing of what is configured: the option structs come from the caller.
//
//	c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: args})
//	err = c.Decode(&options)
//	text, err := c.Explain("grpo.lr")
//
// Reading order: node.go (the tree), yamlread.go, override.go and value.go (the grammar),
// defaults.go and deftree.go (which files), merge.go and edit.go (how they combine), resolve.go
// (interpolation), compose.go (all together), schema.go and check.go (types).
package configs
