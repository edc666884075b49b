package configs

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/registry"
)

// checker compares a tree with a schema and collects every fault.
type checker struct {
	schema *Schema
	root   *Node // for the positions of Validate's findings
	faults Errors
	bad    []string // paths with faults: Validate is not asked about sections that hold one
	lax    bool     // Hydra's own node: text becomes numbers and booleans as in OmegaConf

	memo     *memo // what is known to be in order; nil: nothing
	learning bool  // memo is being filled
}

func (c *checker) fault(n *Node, path, format string, args ...any) {
	c.bad = append(c.bad, path)
	e := errorAt(n.Origin, format, args...)
	if n.Origin == byDefault { // nobody has written it anywhere
		e.Where = Origin{}
	}
	if !strings.Contains(e.Where.Source, path) || n.Origin.Line > 0 { // an override names its key itself
		e.Msg = path + ": " + e.Msg
	}
	if n.from != "" && !strings.Contains(e.Where.Source, n.from) {
		e.Msg += " (" + n.from + " gives it)"
	}
	c.faults = append(c.faults, e)
}

// listOf says how a value is written as a list: of its words, where it has several, such as a program with its arguments.
func listOf(key, value string) string {
	words := strings.Fields(value)
	if len(words) < 2 {
		return "a list of one is " + key + "=[" + value + "]"
	}
	for i, w := range words {
		if strings.ContainsAny(w, `,:=()[]{}'"\$`) {
			words[i] = Quote(w)
		}
	}
	return "a list of its words is " + key + "=[" + strings.Join(words, ",") + "]"
}

// fit checks n against f and returns it with numbers converted to the type of the field.
func (c *checker) fit(f *field, n *Node, path string) *Node {
	if n.tmpl != nil || n.isMissing() || f.kind == Null {
		return n
	}
	if n.Kind == Null {
		if !f.nullable {
			c.fault(n, path, "want %s, got null", f.want())
		}
		return n
	}
	switch f.kind {
	case Map:
		return c.fitMap(f, n, path)
	case List:
		if n.Kind != List {
			hint := ""
			if n.Kind != Map {
				hint = ": " + listOf(path, n.pyStr())
			}
			c.fault(n, path, "want %s, got %s%s", f.want(), shown(n), hint)
			return n
		}
		out := n
		for i, v := range n.Vals {
			w := c.fit(f.elem, v, path+"."+itoa(i))
			out = out.replaced(n, i, v, w)
		}
		return out
	}
	m := c.convert(f, n)
	if m == nil {
		hint := ""
		if n.Kind == List && len(n.Vals) > 1 {
			hint = ": a sweep over values is written without brackets, -m " + path + "=A,B"
		}
		got := shown(n)
		switch {
		case n.Kind == Float:
			got = n.pyStr() // 1.0 is no integer
		case n.Kind == String && (f.kind == Int || f.kind == Float):
			hint = nearNumber(n.Text)
			from, to, ok := strings.Cut(n.Text, "..")
			_, bad := strconv.Atoi(from)
			if end, err := strconv.Atoi(to); ok && bad == nil && err == nil {
				hint = ": the values of a sweep are -m '" + path + "=range(" + from + "," + strconv.Itoa(end+1) + ")'"
			}
		}
		c.fault(n, path, "want %s, got %s%s", f.want(), got, hint)
		return n
	}
	if m.Kind == Int && !f.holds(m.Text) {
		c.fault(n, path, "%s is too large for an integer", m.Text)
		return n
	}
	if m.Kind == String && m.Text == "" && f.nullable && !c.lax && !Covers("hydra", path) { // as of a variable that is not set
		c.fault(n, path, "want %s, got an empty text", f.want())
		return n
	}
	c.limits(f, m, path)
	return m
}

// replaced returns out with item i changed from v to w, copying it from n first when it still is n.
func (out *Node) replaced(n *Node, i int, v, w *Node) *Node {
	if v == w {
		return out
	}
	if out == n {
		return n.with(i, w)
	}
	out.Vals[i] = w
	return out
}

func (c *checker) fitMap(f *field, n *Node, path string) *Node {
	if n.Kind != Map {
		hint := ""
		if len(f.fields) > 0 && path != "" {
			hint = ": set one of its keys, as in " + path + "." + f.fields[0].key + "=VALUE; it has " + strings.Join(f.keys(), ", ")
		}
		c.fault(n, path, "want %s, got %s%s", f.want(), shown(n), hint)
		return n
	}
	if c.memo != nil && c.memo.fits[memoKey{f, n}] {
		return n
	}
	before := len(c.faults)
	out := n
	for i, k := range n.Keys {
		sub := strings.TrimPrefix(path+"."+k.Text, ".")
		sf := f.elem
		if sf == nil {
			if k.Kind == String {
				sf = f.sub(k.Text)
			}
			if sf == nil {
				found := c.schema.Suggest(sub, c.root)
				if n.Vals[i].Kind == Map { // a section was not meant as a value
					found = slices.DeleteFunc(found, func(key string) bool { f := c.schema.find(key); return f == nil || len(f.fields) == 0 })
				}
				msg := c.schema.notFound(sub, found)
				if path == "" && !c.lax {
					msg = ownInstead(msg, sub, n.Vals[i].Kind == Map)
				}
				if c.lax {
					msg = "Key '" + k.Text + "' not in '" + f.typ.Name() + "': unknown key " + sub +
						strings.Replace(didYouMean(k.Text, f.keys()), "mean ", "mean "+path+".", 1)
				}
				c.bad = append(c.bad, sub)
				c.faults = append(c.faults, errorAt(n.Vals[i].Origin, "%s", msg))
				continue
			}
		}
		out = out.replaced(n, i, n.Vals[i], c.fit(sf, n.Vals[i], sub))
	}
	if c.learning && out == n && len(c.faults) == before {
		c.memo.fits[memoKey{f, n}] = true
	}
	return out
}

func (f *field) keys() []string { return list.Map(f.fields, func(c *field) string { return c.key }) }

// convert gives n the field's type when nothing is lost; nil when it does not fit.
func (c *checker) convert(f *field, n *Node) *Node {
	if n.Kind == f.kind {
		return n
	}
	out, loose := *n, c.lax || n.from != ""
	out.Kind = f.kind
	switch {
	case f.kind == Float && n.Kind == Int:
		out.Num, _ = n.number()
		return &out
	case f.kind == String && (n.Kind == Int || n.Kind == Float || loose && n.Kind == Bool):
		out.Text = n.pyStr()
		return &out
	case loose && n.Kind == String:
		if v := fromText(f.kind, n); v != nil {
			v.Origin, v.Over, v.from = n.Origin, n.Over, n.from
			return v
		}
	case loose && f.kind == Bool && n.Kind == Int:
		out.Bool = n.Text != "0"
		return &out
	}
	return nil
}

// fromText is what Python, and so OmegaConf, reads a text as: an integer, a number or a boolean; nil: none.
func fromText(kind Kind, n *Node) *Node {
	var v *Node
	var err error
	switch kind {
	case Int:
		v, err = castScalar("int", n)
	case Float:
		v, err = castScalar("float", n)
	case Bool:
		switch strings.ToLower(n.Text) {
		case "yes", "y", "on", "true":
			return newBool(true)
		case "no", "n", "off", "false":
			return newBool(false)
		}
		if v, err = castScalar("int", n); err == nil {
			v = newBool(v.Text != "0")
		}
	}
	if err != nil {
		return nil
	}
	return v
}

// holds reports whether the field's Go type is large enough for an integer.
func (f *field) holds(digits string) bool {
	t := f.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64 {
		u, err := strconv.ParseUint(digits, 10, 64)
		return err == nil && !t.OverflowUint(u)
	}
	i, err := strconv.ParseInt(digits, 10, 64)
	return err == nil && !t.OverflowInt(i)
}

func (c *checker) limits(f *field, n *Node, path string) {
	if f.rng != nil {
		if x, ok := n.number(); ok && n.Kind != Bool && !f.rng.Holds(x) {
			c.fault(n, path, "want %s, got %s", f.want(), shown(n))
		}
	}
	if f.enum != nil && n.Kind == String {
		if slices.Contains(f.enum, n.Text) {
			return
		}
		if annex := c.schema.lacking(path + "=" + n.Text); annex != "" {
			c.bad = append(c.bad, path)
			c.faults = append(c.faults, errorAt(n.Origin, "%s", annex))
			return
		}
		hint := ""
		near, known := f.words[strings.ToLower(n.Text)]
		if !known {
			near, _ = registry.Suggest(n.Text, f.enum)
		}
		if near != "" {
			hint = " (did you mean " + near + "?)"
		}
		if free := f.member.Tag.Get("free"); free != "" && hint == "" {
			hint = " (for a number of that name in your file: " + strings.TrimSuffix(path, f.key) + free + "=" + n.Text + ")"
		}
		c.fault(n, path, "want one of %s, got %s%s", strings.Join(f.enum, ", "), n.Text, hint)
	}
}

// want says what a field takes.
func (f *field) want() string {
	s := [...]string{Null: "", Bool: "true or false", Int: "an integer", Float: "a number", String: "text", Map: "a section",
		List: "a list"}[f.kind]
	if f.kind == List && f.elem != nil && f.elem.kind != Null {
		s += " of " + strings.TrimPrefix(strings.TrimPrefix(f.elem.want(), "a "), "an ")
	}
	if f.enum != nil && f.kind == String {
		s = "one of " + strings.Join(f.enum, ", ")
	}
	if f.rng != nil && f.kind != List && f.kind != Map {
		s += " in " + f.rng.String()
	}
	if f.nullable {
		s += " or null"
	}
	return s
}

// typewriter turns what word processors make of quotes, minus signs and blanks into what a keyboard types.
var typewriter = strings.NewReplacer("“", `"`, "”", `"`, "„", `"`, "‘", "'", "’", "'", "−", "-", "–", "-", "—", "-", "\u00a0", " ")

// nearNumber is the number that was meant by text with a decimal comma, another minus sign or quotes, as a part of a message.
func nearNumber(text string) string {
	meant := strings.Trim(typewriter.Replace(text), `"' `)
	if strings.Count(meant, ",") == 1 {
		meant = strings.Replace(meant, ",", ".", 1)
	}
	_, err := strconv.ParseFloat(meant, 64)
	return registry.DidYouMean(meant, err == nil && meant != text)
}

// shown is a value in a message.
func shown(n *Node) string {
	switch n.Kind {
	case Map, List:
		return n.Kind.String()
	case String:
		return "the text " + clip(n.Text)
	case Null:
		return "null"
	case Bool:
		return strings.ToLower(n.pyStr())
	case Float:
		return strconv.FormatFloat(n.Num, 'g', -1, 64)
	}
	return n.Text
}

// check compares a resolved tree with the schema and asks every section's Validate. All faults are
// returned, sorted by position. dropped names the keys that root lacks because they have no effect.
func (s *Schema) check(root *Node, m *memo, dropped []string) (*Node, error) {
	c := &checker{schema: s, root: root, memo: m}
	out := c.fit(s.root, root, "")
	base := s.defaults
	if m != nil && slices.Equal(m.dropped, dropped) {
		base = m.base
	}
	v, err := s.decode(base, out)
	if err != nil && len(c.faults) == 0 && !out.hasMissing() {
		return nil, err
	}
	c.validate(v, s.root, out, "")
	return out, c.faults.err()
}

// validate asks the section at path, after its sub-sections; of the outermost ones, those that its owners let it.
func (c *checker) validate(v reflect.Value, f *field, n *Node, path string) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || n == nil || n.Kind != Map || c.memo != nil && c.memo.valid[memoKey{f, n}] {
		return
	}
	before := len(c.faults)
	defer func() {
		if c.learning && len(c.faults) == before && c.memo.plain[n] && !n.hasMissing() {
			c.memo.valid[memoKey{f, n}] = true
		}
	}()
	for _, sf := range f.fields {
		if o := c.schema.owners; path == "" && o != nil && sf.kind == Map && !o.Checked(valuesOf(c.root), sf.key) {
			continue
		}
		c.validate(f.in(v, sf), sf, n.Get(sf.key), strings.TrimPrefix(path+"."+sf.key, "."))
	}
	val, ok := v.Addr().Interface().(interface{ Validate() error })
	if !ok || c.spoiled(n, path) {
		return
	}
	for _, err := range unjoin(val.Validate()) {
		key, msg := "", err.Error()
		if oe, ok := errors.AsType[*option.Error](err); ok {
			key, msg = oe.Key, oe.Msg
		}
		full := strings.Trim(path+"."+key, ".")
		at := nearestNode(c.root, full)
		c.fault(at, full, "%s", msg)
	}
}

// spoiled reports whether a section has a fault or a value that is still ???.
func (c *checker) spoiled(n *Node, path string) bool {
	return n.hasMissing() || slices.ContainsFunc(c.bad, func(b string) bool {
		return path == "" || b == path || strings.HasPrefix(b, path+".")
	})
}

func (n *Node) hasMissing() bool {
	return n.isMissing() || slices.ContainsFunc(n.Vals, (*Node).hasMissing)
}

// nearestNode is the value at path, or its closest ancestor.
func nearestNode(root *Node, path string) *Node {
	n := root
	for _, part := range splitPath(path) {
		next := n.child(part)
		if next == nil {
			break
		}
		n = next
	}
	return n
}

func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.Concat(list.Map(j.Unwrap(), unjoin)...)
	}
	return []error{err}
}
