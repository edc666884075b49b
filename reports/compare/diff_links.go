package compare

import (
	"maps"
	"regexp"
	"strings"
)

// link is an interpolation of a key; resolvers, such as oc.env, have a colon and are left as they are.
var link = regexp.MustCompile(`\$\{(\.*)([\w.]+)\}`)

// linked returns the values of a side's configuration, and the links that they come by.
func (s DiffSide) linked() (values, via map[string]string) {
	values, via = linked(s.config)
	maps.Copy(values, s.resolved)
	return values, via
}

// linked returns a configuration with the values that its links lead to, and by key the links themselves. What leads nowhere stays.
func linked(config map[string]string) (values, via map[string]string) {
	const deepest = 8 // a link to a link …
	values, via = map[string]string{}, map[string]string{}
	var resolved func(key string, depth int) string
	resolved = func(key string, depth int) string {
		return link.ReplaceAllStringFunc(config[key], func(ref string) string {
			path := target(key, link.FindStringSubmatch(ref))
			if _, is := config[path]; !is || depth == 0 {
				return ref
			}
			return resolved(path, depth-1)
		})
	}
	for key, value := range config {
		ref := link.FindStringSubmatch(value)
		if ref == nil {
			values[key] = value
			continue
		}
		path, section := target(key, ref), false
		for inner := range config { // of a whole section
			if below, ok := strings.CutPrefix(inner, path+"."); ok && ref[0] == value {
				values[key+"."+below], via[key+"."+below], section = resolved(inner, deepest), inner, true
			}
		}
		if !section {
			values[key], via[key] = resolved(key, deepest), path
		}
	}
	return values, via
}

// target is the key that a link of key leads to: dots before it go up from where the key stands.
func target(key string, ref []string) string {
	if ref[1] == "" {
		return ref[2]
	}
	parts := strings.Split(key, ".")
	return strings.TrimPrefix(strings.Join(append(parts[:max(len(parts)-len(ref[1]), 0)], ref[2]), "."), ".")
}
