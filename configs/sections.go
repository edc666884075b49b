package configs

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Section holds the options of a section whose name is free: schedule: [my_grpo], my_grpo: {kind: grpo, lr: 1e-6}.
// The outermost option struct holds such sections by name in a map[string]Section tagged koanf:",sections". Those in
// its defaults are always there; others a user adds by a mapping with a key kind. The outermost struct's
// Kinds() map[string]any returns a pointer to the default options of every kind. A section without a kind belongs to an
// entry of a table, such as a task: it has one name, and users add no other.
type Section struct {
	Kind    string
	Options any    // pointer to the kind's, or the entry's, options
	Help    string // what a section of the defaults is for
	Before  string // the field that the section stands before; "": among the sections with a kind
}

// sections describes what may be in the map of free sections.
type sections struct {
	index []int          // of the map in the outermost struct
	at    int            // the sections stand before this field
	kinds map[string]any // pointers to default options
}

// freeSections reads what the outermost struct says about sections, and adds those of its defaults to the schema.
func (s *Schema) freeSections() error {
	v := s.defaults.value
	if s.root.free == nil {
		return nil
	}
	if of, ok := v.Addr().Interface().(interface{ Kinds() map[string]any }); ok {
		s.root.free.kinds = of.Kinds()
	}
	for _, c := range s.root.fields { // grpo: {kind: grpo} says the same as grpo: {}
		if s.root.free.kinds[c.key] != nil {
			c.takeKind([]string{c.key})
		}
	}
	present := v.FieldByIndex(s.root.free.index).Interface().(map[string]Section)
	for _, name := range slices.Sorted(maps.Keys(present)) {
		if err := s.add(name, present[name]); err != nil {
			return err
		}
	}
	return nil
}

// add puts a section into the schema, behind those that are there.
func (s *Schema) add(name string, is Section) error {
	options := reflect.ValueOf(is.Options).Elem()
	c := &field{key: name, path: name, of: is.Kind, said: is.Help}
	if err := c.describe(options.Type()); err != nil {
		return err
	}
	tree := defaultNode(options, c)
	c.base = decoded{options, tree}
	root, free := *s.root, *s.root.free
	at := free.at
	if is.Kind != "" {
		c.takeKind([]string{is.Kind})
	}
	if is.Before != "" {
		if at = slices.Index(root.keys(), is.Before); at < 0 {
			return errorf("schema: section %s stands before %s, which there is not", name, is.Before)
		}
	}
	if at <= free.at {
		free.at++
	}
	all := *s.defaults.tree
	all.Keys = slices.Insert(slices.Clone(all.Keys), at, strKey(name))
	all.Vals = slices.Insert(slices.Clone(all.Vals), at, tree)
	s.defaults.tree = &all
	root.fields = slices.Insert(slices.Clone(root.fields), at, c)
	root.free = &free
	s.root = &root
	return nil
}

// takeKind lets a section name its kind, which is no part of its options.
func (f *field) takeKind(kinds []string) {
	f.fields = append(f.fields, &field{key: "kind", path: f.path + ".kind", kind: String, typ: reflect.TypeFor[string](), enum: kinds})
}

// with returns the schema with the sections of given, the nodes that name their kinds.
func (s *Schema) with(given map[string]*Node) (*Schema, error) {
	if len(given) == 0 {
		return s, nil
	}
	more := *s
	var faults Errors
	for _, name := range slices.Sorted(maps.Keys(given)) {
		n := given[name]
		options, ok := s.root.free.kinds[n.Text]
		if !ok || n.Kind != String {
			ck := &checker{}
			kind := &field{enum: slices.Sorted(maps.Keys(s.root.free.kinds))}
			ck.limits(kind, plainString(n.pyStr()).at(n.Origin), name+".kind")
			faults = append(faults, ck.faults...)
			continue
		}
		if err := more.add(name, Section{Kind: n.Text, Options: options}); err != nil {
			return nil, err
		}
	}
	return &more, faults.err()
}

// kindsGiven returns the kinds that files and overrides give to sections which the schema does not have.
func (s *Schema) kindsGiven(list []content, values []*Override) map[string]*Node {
	given := map[string]*Node{}
	if s == nil || s.root.free == nil {
		return given
	}
	note := func(name string, n *Node) {
		kind, was := n.Get("kind"), given[name]
		if ours := was != nil && strings.HasPrefix(was.Origin.Source, builtinFiles); ours { // whose other keys are of its kind
			return
		}
		inside := strings.Contains(name, ".") // of a section, whose options may have a kind: grpo.correction
		if kind != nil && kind.tmpl == nil && s.root.sub(name) == nil && name != "hydra" && !inside {
			given[name] = kind
		}
	}
	for _, item := range list {
		if item.pkg != "" {
			note(item.pkg, item.file.content)
			continue
		}
		for i, k := range item.file.content.Keys {
			note(k.Text, item.file.content.Vals[i])
		}
	}
	for _, o := range values {
		if o.value == nil || o.isHydra() {
			continue
		}
		n := o.value.toNode().at(o.where())
		if name, ok := strings.CutSuffix(o.Key, ".kind"); ok {
			n = newMap().set(strKey("kind"), n)
			note(name, n)
		} else {
			note(o.Key, n)
		}
	}
	return given
}

// apart reports whether a section's options are not in the outermost struct.
func (f *field) apart() bool { return f.base.value.IsValid() }

// decode returns a copy of base with the values of n. koanf holds what n changes; the struct takes its part, and each section its own
// (Cut).
func (s *Schema) decode(base decoded, n *Node) (reflect.Value, error) {
	v := reflect.New(base.value.Type()).Elem()
	v.Set(base.value)
	values, all := s.root.changes(v, n, base.tree), map[string]Section{}
	for _, c := range s.root.fields {
		if !c.apart() {
			continue
		}
		options := reflect.New(c.base.value.Type())
		options.Elem().Set(c.base.value)
		all[c.key] = Section{Kind: c.of, Options: options.Interface()}
		if is := n.Get(c.key); is != nil {
			if own := c.changes(options.Elem(), is, c.base.tree); len(own) > 0 {
				values[c.key] = own
			}
		}
	}
	k, err := held(values)
	if len(values) > 0 {
		err = errors.Join(err, take(k, v)) // what does not fit is passed over, and the rest is there to be validated
	}
	for name, section := range all {
		if k.Exists(name) {
			err = errors.Join(err, take(k.Cut(name), reflect.ValueOf(section.Options).Elem()))
		}
	}
	if s.root.free != nil {
		v.FieldByIndex(s.root.free.index).Set(reflect.ValueOf(all))
	}
	return v, err
}

// in returns the value of sub-section c in v, a section of type f.
func (f *field) in(v reflect.Value, c *field) reflect.Value {
	if !c.apart() {
		return v.FieldByIndex(c.index)
	}
	return reflect.ValueOf(v.FieldByIndex(f.free.index).Interface().(map[string]Section)[c.key].Options)
}
