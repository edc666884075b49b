package configs

import (
	"cmp"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// This file finds the key that was meant by one that the schema does not have.

// synonyms reads the tag also: names of the key, and word=value for its values.
func (f *field) synonyms(tag string) {
	if tag == "" {
		return
	}
	for _, word := range strings.Split(tag, ",") {
		if name, value, ok := strings.Cut(word, "="); ok {
			if f.words == nil {
				f.words = map[string]string{}
			}
			f.words[name] = value
		} else {
			f.also = append(f.also, word)
		}
	}
}

// instead says what is set of a key that cannot be deleted.
func (f *field) instead() string {
	switch {
	case f.sub("weight") != nil:
		return f.path + ".weight=0"
	case f.sub("enabled") != nil:
		return f.path + ".enabled=false"
	case len(f.fields) > 0:
		return "its keys"
	}
	if f.nullable {
		return f.path + "=null"
	}
	return "it to another value"
}

// called reports whether other libraries call the field so.
func (f *field) called(name string) bool {
	return slices.ContainsFunc(f.also, func(theirs string) bool { return strings.EqualFold(theirs, name) })
}

// Suggest returns the keys that an unknown one may stand for, best first: a sibling of another name or with a
// typing error, else a key of that name in any section, else the nearest of all. root (nil: unknown) is the
// configuration so far.
func (s *Schema) Suggest(key string, root *Node) []string {
	parts := splitPath(key)
	last, parent := parts[len(parts)-1], strings.Join(parts[:len(parts)-1], ".")
	if f := s.find(strings.ToLower(strings.ReplaceAll(key, "/", "."))); f != nil { // GRPO.lr, grpo/lr
		return []string{f.path}
	}
	section := s.find(parent)
	if f := section; f != nil && parent != "" {
		acting := list.Filter(f.fields, func(c *field) bool { return root == nil || s.acts(root, c.path) })
		for _, fields := range [][]*field{acting, f.fields} {
			for _, c := range fields {
				if c.called(last) {
					return []string{c.path}
				}
			}
			if near, ok := registry.Suggest(last, list.Map(fields, func(c *field) string { return c.key })); ok {
				return []string{parent + "." + near}
			}
		}
		inside := f.below(func(c *field) bool { return c.key == last && (root == nil || s.acts(root, c.path)) }) // rce.schedule
		if len(inside) == 1 {
			return inside
		}
	} else if near, ok := registry.Nearest(last, s.root.keys()); ok && parent == "" {
		return []string{near}
	}
	outermost, _, _ := strings.Cut(key, ".")
	found, byName := s.elsewhere(key, last, root), s.elsewhere(last, last, root)                                 // trainer.lr
	keys := list.Unique(list.Map(byName, func(path string) string { return path[strings.Index(path, ".")+1:] })) // of rce.lr, grpo.lr: lr
	if section != nil && root != nil && len(keys) == 1 && strings.Count(byName[0], ".") < 2 && s.acts(root, byName[0]) &&
		(len(found) == 0 || !strings.HasSuffix(found[0], last) && !strings.HasPrefix(found[0], outermost+".")) {
		return byName
	}
	if len(found) > 0 {
		return found
	}
	if section == nil {
		inside := s.root.below(func(f *field) bool { return Covers(outermost, f.path) && f.key == last }) // rewards.jugde.weight
		if near, ok := registry.Nearest(key, inside); ok {
			return []string{near}
		}
		if len(byName) > 0 {
			return byName
		}
	}
	all := s.root.below(func(f *field) bool {
		_, alike := registry.Nearest(last, []string{f.key})
		return (alike || section == nil) && !strings.HasPrefix(key, f.path+".") // the section that lacks the key is no key to set
	})
	if near, ok := registry.Nearest(key, all); ok {
		return []string{near}
	}
	return nil
}

// elsewhere returns the keys of any section that end in key, else those that other libraries call by its last part. Of
// several, those that act in a run with the values of root are meant; where none does, longer names that do: of generate.temperature
// in training, grpo.sample_temperature.
func (s *Schema) elsewhere(key, last string, root *Node) []string {
	if f := s.root.sub(key); f != nil && f.kind != Map { // trainer.seed
		return []string{key}
	}
	acts := func(path string) bool { return root == nil || s.acts(root, path) }
	ending := func(with string) []string {
		return s.root.below(func(f *field) bool { return len(f.fields) == 0 && strings.HasSuffix(f.path, with) })
	}
	found, longer := ending("."+key), list.Filter(ending("_"+last), func(path string) bool { return root != nil && acts(path) })
	if len(found) == 0 {
		longer = nil
		found = s.root.below(func(f *field) bool { return f.called(last) })
		if section, _, ok := strings.Cut(key, "."); ok { // grpo.clip_range means no key of rce
			if inside := list.Filter(found, func(path string) bool { return Covers(section, path) }); len(inside) > 0 {
				return inside
			}
		}
	}
	for _, better := range [][]string{list.Filter(found, acts), longer} {
		if len(better) > 0 {
			return better
		}
	}
	return found
}

// below returns the paths of those fields below f that are wanted.
func (f *field) below(wanted func(f *field) bool) (paths []string) {
	f.walk(func(f *field) {
		if wanted(f) {
			paths = append(paths, f.path)
		}
	})
	return paths
}

// suggest adds Hydra's own keys to what the schema suggests.
func (c *Composer) suggest(s *Schema, key string, root *Node) []string {
	var found []string
	if s != nil {
		found = s.Suggest(key, root)
	}
	if parts := splitPath(key); len(found) == 0 {
		theirs := c.hydraCheck.root.below(func(f *field) bool { return f.called(parts[len(parts)-1]) })
		for _, path := range theirs[:min(len(theirs), 1)] {
			found = []string{"hydra." + path}
		}
	}
	return found
}

// Settings returns what a word without an equals sign may have been meant as: a group or key with the value behind it,
// or an option of a group.
func Settings(req Request, word, value string) []string {
	req.Overrides = nil
	c, err := NewComposer(req)
	if err != nil {
		return nil
	}
	value = cmp.Or(value, "VALUE")
	name := strings.ReplaceAll(strings.TrimLeft(word, "-"), "-", "_")
	groups, options, err := c.lib.allGroups("")
	if err != nil {
		return nil
	}
	if slices.Contains(groups, name) || c.req.Schema != nil && c.req.Schema.find(name) != nil && name != "" {
		return []string{name + "=" + value}
	}
	var out, all []string
	if c.req.Schema != nil {
		for _, f := range c.req.Schema.root.fields { // train
			if slices.Contains(f.enum, word) {
				out = append(out, f.path+"="+word)
			}
		}
	}
	for _, g := range groups {
		if slices.Contains(options[g], word) {
			out = append(out, g+"="+word)
		}
		all = append(all, options[g]...)
	}
	if len(out) > 0 {
		return out
	}
	for _, key := range c.suggest(c.req.Schema, name, nil) {
		out = append(out, key+"="+value)
	}
	if near, ok := registry.Nearest(word, all); ok && len(out) == 0 {
		for _, g := range groups {
			if slices.Contains(options[g], near) {
				out = append(out, g+"="+near)
			}
		}
	}
	return out
}

// ownSection is the user's own: no key in it means anything to the program.
const ownSection = "vars"

// noneNear ends the message for a key that none is near to, most often one of a user's own.
func noneNear(key string) string {
	own := ownSection + "." + key
	return ": none of the program's keys is near it (--cfg job prints them); a key of your own stands in the section " + ownSection + ", as " +
		own + " (a new one on the command line with +" + own + "=VALUE), and ${" + own + "} reads it"
}

// ownInstead ends the message for an outermost key of a file that none of the program's outermost is near to: it may be one of the user's.
func ownInstead(msg, key string, section bool) string {
	own := ownSection + "." + key
	none, _, unlike := strings.Cut(msg, ": none of")
	switch {
	case section && unlike:
		return none + ": none of the program's sections is near it; one of your own stands in " + ownSection + ", as " + own +
			", and a group fills it with " + key + "@" + own + ": OPTION in the defaults list"
	case !section && strings.Contains(msg, ".") && strings.Contains(msg, "did you mean"): // only keys of sections are near
		return msg + "; a key of your own stands in " + ownSection + ", as " + own
	}
	return msg
}

// notFound is the message for an unknown key with what may have been meant.
func (s *Schema) notFound(key string, found []string) string {
	section, _, _ := strings.Cut(key, ".")
	if annex := s.lacking(section); annex != "" {
		return annex
	}
	msg := "unknown key " + key
	const most = 6 // suggestions
	if n := len(found); n == 1 {
		return msg + " (did you mean " + found[0] + "?)"
	} else if n > 1 && n <= most {
		return msg + " (did you mean " + strings.Join(found[:n-1], ", ") + " or " + found[n-1] + "?)"
	}
	parts := splitPath(key)
	if theirs := s.foreign[parts[len(parts)-1]]; theirs != "" {
		return msg + ": " + theirs
	}
	for n := len(parts) - 1; n > 0; n-- { // what stands nearest above it
		switch f := s.find(strings.Join(parts[:n], ".")); {
		case f == nil || f.path == "":
		case len(f.fields) > 0:
			return msg + ": " + f.path + " has " + strings.Join(f.keys(), ", ")
		default:
			return msg + ": " + f.path + " has no keys of its own, it takes " + f.want()
		}
	}
	return msg + noneNear(key)
}
