package configs

import (
	"cmp"
	_ "embed"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
)

// Schema is what a config may hold: built by reflection from option structs with their defaults.
//
// Struct tags: koanf:"key" (required; a field without it is not part of the config), enum:"a,b",
// range:"(0,1]" or "[0,inf)", also:"r,half=float16" (what other libraries call the key, or one of its
// values: for messages only), free:"key" (the neighbour that takes any name, where an enum does not: for
// messages only), constant:"true" (a number that nobody sets: it is no key, its default is its value and the doc
// comment says why), constant:"accepted" (another program's key, which can say one thing here: read, not documented),
// when:"rollout=online" (values of a neighbour under which the key has an effect: condition). The field's doc
// comment says what the key means (option_help.txt). Where the names of an enum are those of a table, the struct
// has Choices() map[string][]string instead of the tag: the names by key, dotted for keys of its sub-sections. A
// pointer may be null. A nested struct is a section, a map[string]T takes any keys, an interface takes anything. A
// struct may have Validate() error. Owners (OwnedBy) say which of the outermost sections act: the others are not
// asked, and of several keys that a short name may stand for, those that act are suggested.
type Schema struct {
	root     *field
	defaults decoded
	owners   Owners // nil: every section acts
	// absent names the annex, by section or by KEY=VALUE, of what this program is built without
	absent map[string]string
	// foreign says of other programs' keys, by last part, what is done instead
	foreign map[string]string
}

type field struct {
	key      string
	path     string       // dotted, * for the keys of a map
	said     string       // what the key means, where a table says it
	owner    reflect.Type // else the struct and its field, whose doc comment does
	member   reflect.StructField
	kind     Kind // Map: section or map; Null: anything
	nullable bool
	enum     []string
	choices  map[string][]string // of a section's keys, from the tables that its struct and those above name
	also     []string            // other libraries' names of the key
	words    map[string]string   // other libraries' words for the values of enum
	when     condition           // under which the key has an effect
	rng      *option.Range
	fields   []*field // section
	elem     *field   // of a list, or of a map with free keys
	typ      reflect.Type
	index    []int     // of the struct field
	free     *sections // of the outermost section
	of       string    // kind of a free section
	base     decoded   // its defaults
}

// SchemaOf builds the schema of a pointer to a struct that holds the default values. choices are the names of tables that the struct's own
// package does not know, by key.
func SchemaOf(defaults any, choices map[string][]string) (*Schema, error) {
	v, err := structAt(defaults)
	if err != nil {
		return nil, err
	}
	root := &field{kind: Map, choices: choices}
	if err := root.describe(v.Type()); err != nil {
		return nil, err
	}
	s := &Schema{root: root, defaults: decoded{v, defaultNode(v, root)}}
	return s, s.freeSections()
}

// Lacks says which annex would bring what the schema does not have, by section or by KEY=VALUE: a message names it.
func (s *Schema) Lacks(annexes map[string]string) { s.absent = annexes }

// Foreign says of keys of other programs, by their last part, what is done instead: the message for an unknown key ends with it.
func (s *Schema) Foreign(instead map[string]string) { s.foreign = instead }

// lacking is the message about what belongs to an annex that is not built in; "" for anything else.
func (s *Schema) lacking(what string) string {
	if s == nil || s.absent[what] == "" {
		return ""
	}
	return what + ": this program is built without the annex \"" + s.absent[what] + "\""
}

// describe fills in what f's Go type says.
func (f *field) describe(t reflect.Type) error {
	f.typ = t
	if t.Kind() == reflect.Pointer {
		f.nullable = true
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		f.kind = Bool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		f.kind = Int
	case reflect.Float32, reflect.Float64:
		f.kind = Float
	case reflect.String:
		f.kind = String
	case reflect.Interface:
		f.kind = Null
	case reflect.Slice:
		f.kind = List
		f.elem = &field{path: f.path + ".*", enum: f.enum, rng: f.rng}
		return f.elem.describe(t.Elem())
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return errorf("schema: %s: a map must have text keys, got %s", f.path, t)
		}
		f.kind = Map
		f.elem = &field{path: strings.TrimPrefix(f.path+".*", "."), enum: f.enum, rng: f.rng}
		return f.elem.describe(t.Elem())
	case reflect.Struct:
		f.kind = Map
		return f.section(t, nil)
	default:
		return errorf("schema: %s: cannot hold a %s", f.path, t)
	}
	return nil
}

func (f *field) section(t reflect.Type, index []int) error {
	own := map[string][]string{}
	if c, ok := reflect.Zero(t).Interface().(interface{ Choices() map[string][]string }); ok {
		own = c.Choices()
		above := f.choices
		f.choices = maps.Clone(own)
		maps.Copy(f.choices, above)
	}
	for i := 0; i < t.NumField(); i++ {
		sf := t.Field(i)
		at := append(slices.Clone(index), i)
		tag, tagged := sf.Tag.Lookup("koanf")
		key, opts, _ := strings.Cut(tag, ",")
		if (sf.Anonymous && key == "" || opts == "squash") && sf.Type.Kind() == reflect.Struct {
			if err := f.section(sf.Type, at); err != nil {
				return err
			}
			continue
		}
		if opts == "sections" && f.path == "" {
			f.free = &sections{index: at, at: len(f.fields)}
		}
		if !tagged || key == "" || key == "-" || !sf.IsExported() || sf.Tag.Get("constant") == "true" {
			continue
		}
		c := &field{key: key, path: strings.TrimPrefix(f.path+"."+key, "."), owner: t, member: sf, index: at}
		c.enum = f.choices[key]
		if e := sf.Tag.Get("enum"); e != "" {
			c.enum = strings.Split(e, ",")
		}
		for name, values := range f.choices {
			if sub, ok := strings.CutPrefix(name, key+"."); ok {
				if c.choices == nil {
					c.choices = map[string][]string{}
				}
				c.choices[sub] = values
			}
		}
		c.synonyms(sf.Tag.Get("also"))
		c.when = conditionOf(sf.Tag.Get("when"))
		if r := sf.Tag.Get("range"); r != "" {
			rng, err := option.ParseRange(r)
			if err != nil {
				return errorf("schema: %s: %v", c.path, err)
			}
			c.rng = rng
		}
		if f.sub(key) != nil {
			return errorf("schema: %s is declared twice", c.path)
		}
		if err := c.describe(sf.Type); err != nil {
			return err
		}
		f.fields = append(f.fields, c)
	}
	for name := range own {
		if key, _, _ := strings.Cut(name, "."); f.sub(key) == nil {
			return errorf("schema: choices for the key %s, which the struct does not have", name)
		}
	}
	return nil
}

func (f *field) sub(key string) *field {
	if i := slices.IndexFunc(f.fields, func(c *field) bool { return c.key == key }); i >= 0 {
		return f.fields[i]
	}
	return nil
}

// byDefault is where a value comes from that no file and no override sets.
var byDefault = Origin{Source: "default"}

func defaultNode(v reflect.Value, f *field) *Node {
	n := defaultValue(v, f)
	n.Origin = byDefault
	return n
}

func defaultValue(v reflect.Value, f *field) *Node {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return newNull()
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Bool:
		return newBool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return newInt(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Node{Kind: Int, Text: strconv.FormatUint(v.Uint(), 10)}
	case reflect.Float32, reflect.Float64:
		return newFloat(v.Float())
	case reflect.String:
		return stringOf(v.String())
	case reflect.Slice:
		return newList(list.Make(v.Len(), func(i int) *Node { return defaultNode(v.Index(i), f.elem) })...)
	case reflect.Map:
		n := newMap()
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			n.Keys = append(n.Keys, strKey(k.String()))
			n.Vals = append(n.Vals, defaultNode(v.MapIndex(k), f.elem))
		}
		return n
	case reflect.Struct:
		n := newMap()
		for _, c := range f.fields {
			n.Keys = append(n.Keys, strKey(c.key))
			n.Vals = append(n.Vals, defaultNode(v.FieldByIndex(c.index), c))
		}
		return n
	}
	return newNull()
}

// Keys returns every dotted key, in the order of the structs.
func (s *Schema) Keys() []string {
	return s.root.below(func(f *field) bool { return len(f.fields) == 0 })
}

func (f *field) walk(visit func(*field)) {
	for _, c := range f.fields {
		visit(c)
		c.walk(visit)
	}
}

// Help returns what a dotted key means, "" where nobody says it.
func (s *Schema) Help(key string) string {
	if f := s.find(key); f != nil {
		return f.help()
	}
	return ""
}

// find returns the field of a dotted key; nil when there is none. Keys inside free maps and
// anything-values give their element.
func (s *Schema) find(key string) *field {
	f := s.root
	for _, part := range splitPath(key) {
		switch {
		case f == nil:
			return nil
		case f.kind == Null:
			return f
		case f.elem != nil:
			f = f.elem
		default:
			f = f.sub(part)
		}
	}
	return f
}

// condition says when a key has an effect: where a neighbour has one of some values. Of a section, .enabled says that its other keys
// have one where its own key enabled does. Without values, any but null, false, 0, none and the empty text will do; ! turns it round.
type condition struct {
	key    string
	values []string
	within bool // key is in the section itself
	not    bool
}

// conditionOf reads the tag when.
func conditionOf(tag string) (c condition) {
	tag, c.not = strings.CutPrefix(tag, "!")
	tag, c.within = strings.CutPrefix(tag, ".")
	key, values, valued := strings.Cut(tag, "=")
	if c.key = key; valued {
		c.values = strings.Split(values, "|")
	}
	return c
}

// holds reports whether section n has such a value. A value that is not known yet may be any.
func (c condition) holds(n *Node) bool {
	v := n.Get(c.key)
	if c.key == "" || v == nil || v.tmpl != nil {
		return true
	}
	met := slices.Contains(c.values, strings.ToLower(v.pyStr())) || slices.Contains(c.values, v.Text)
	if c.values == nil {
		x, number := v.number()
		empty := v.Kind == Null || v.Kind == String && (v.Text == "" || v.Text == "none") || v.Kind == List && len(v.Vals) == 0
		met = !empty && (!number || x != 0)
	}
	return met != c.not
}

// conditions says what must hold for a key to have an effect, outermost first.
func (s *Schema) conditions(key string) (out []string) {
	for f, path, more := s.root, "", key; more != ""; {
		part, rest, _ := strings.Cut(more, ".")
		if more, f = rest, f.sub(part); f == nil {
			break
		}
		at := path
		if path += part + "."; f.when.within {
			at = path
		}
		if f.when.key != "" && at+f.when.key != key {
			out = append(out, at+f.when.String())
		}
	}
	return out
}

func (c condition) String() string {
	is := map[bool]string{false: " is set", true: " is not set"}
	if c.values != nil {
		is = map[bool]string{false: "=" + strings.Join(c.values, "|"), true: " is not " + strings.Join(c.values, " or ")}
	}
	return c.key + is[c.not]
}

//go:generate go test -count=1 -run TestOptionHelpIsCurrent -update .

//go:embed option_help.txt
var optionHelp string

// helpTexts maps import path.Type.Field to the field's doc comment in the sources.
var helpTexts = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	for line := range strings.Lines(optionHelp) {
		field, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		texts[field] = text
	}
	return texts
})

// help returns what a key means: what its table says, its help tag (options of tests), else its field's doc comment. It
// is looked up when somebody asks, as most commands never do.
func (f *field) help() string {
	if text := cmp.Or(f.said, f.member.Tag.Get("help")); text != "" || f.owner == nil {
		return text
	}
	return helpTexts()[f.owner.PkgPath()+"."+f.owner.Name()+"."+f.member.Name]
}
