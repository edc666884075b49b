package record

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Settings reads the configuration of a run folder as dotted keys; a folder without one has none.
func Settings(dir string) (map[string]string, error) {
	return FlatFile(filepath.Join(dir, ".hydra", "config.yaml"))
}

// FlatFile reads a YAML file as dotted keys; one that is absent has none.
func FlatFile(path string) (map[string]string, error) {
	flat := map[string]string{}
	var tree any
	if _, err := readYAML(path, &tree); err != nil {
		return nil, err
	}
	switch tree.(type) {
	case nil:
	case map[string]any:
		Flatten(flat, "", tree)
	default:
		return nil, fmt.Errorf("%s: want a YAML file of keys and values", path)
	}
	return flat, nil
}

// Flatten writes a config tree as dotted keys; lists are one value.
func Flatten(into map[string]string, prefix string, node any) {
	if section, ok := node.(map[string]any); ok {
		for key, value := range section {
			Flatten(into, strings.TrimPrefix(prefix+"."+key, "."), value)
		}
		return
	}
	into[prefix] = inLine(node)
}

// inLine returns a value as YAML in a line: [sft, rce], not lines.
func inLine(node any) string {
	switch x := node.(type) { // as yaml writes them, without its work
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(x)
	case int:
		return strconv.Itoa(x)
	case float64:
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			return strconv.FormatFloat(x, 'g', -1, 64)
		}
	}
	var value yaml.Node
	text := fmt.Append(nil, node)
	if value.Encode(node) == nil {
		value.Style |= yaml.FlowStyle
		if flow, err := yaml.Marshal(&value); err == nil {
			text = flow
		}
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
