package record

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Where are the keys that say where and how a run is computed, not what it computes and writes: they may be given anew when it goes on.
func Where() []string {
	return []string{"hydra", "checks", "on_end", "parallel.processes", "parallel.backend", "parallel.timeout_seconds", "lvlm.url",
		"lvlm.key_env", "lvlm.concurrency", "lvlm.timeout_seconds", "lvlm.retries", "lvlm.store", "checkpoint.on_damage",
		"checkpoint.keep_states", `optim.state="offload"`}
}

// Watched are these keys and those that say how a run is recorded and watched.
func Watched() []string { return append(Where(), "logging", "report", "dry_run", "evidence") }

var watched = Watched()

// ChangesNoResult reports whether a key is one of Watched, or in a section of it. At another address may be another model.
func ChangesNoResult(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	return key != "lvlm.url" && slices.ContainsFunc(watched, func(w string) bool { return w == key || w == section })
}

// Settings reads the configuration of a run folder as dotted keys; a folder without one has none.
func Settings(dir string) (map[string]string, error) {
	flat, err := FlatFile(filepath.Join(dir, ".hydra", "config.yaml"))
	if err != nil {
		return nil, err
	}
	resolved, err := FlatFile(filepath.Join(dir, ResolvedFile))
	for key := range resolved {
		for at := strings.LastIndexByte(key, '.'); at > 0; at = strings.LastIndexByte(key[:at], '.') {
			delete(flat, key[:at]) // an interpolation of a whole section
		}
	}
	maps.Copy(flat, resolved)
	return flat, err
}

// ResolvedFile has the numbers, and true and false, that interpolations of a run's configuration stood for when it started: an environment
// variable may be another today. Texts may be secrets, and are not in it. A configuration without such interpolations has no such file.
const ResolvedFile = ".hydra/resolved.yaml"

// Resolved returns what ResolvedFile is to hold, from a configuration as it was composed and with its values; nil for nothing.
func Resolved(composed, values any) any {
	if section, is := values.(map[string]any); is {
		below, written := composed.(map[string]any) // else an interpolation of the whole section
		out := map[string]any{}
		for key, value := range section {
			from := composed
			if written {
				from = below[key]
			}
			if one := Resolved(from, value); one != nil {
				out[key] = one
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	of, list := values.([]any)
	if !list {
		of = []any{values}
	}
	secret := func(x any) bool { // it may be one
		switch x.(type) {
		case int, float64, bool:
			return false
		}
		return true
	}
	if !strings.Contains(fmt.Sprint(composed), "${") || slices.ContainsFunc(of, secret) {
		return nil
	}
	return values
}

// overlay puts values in the place of those of a tree.
func overlay(tree, values any) any {
	into, ok := tree.(map[string]any)
	section, is := values.(map[string]any)
	if !is || !ok {
		return values
	}
	for key, value := range section {
		into[key] = overlay(into[key], value)
	}
	return into
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
