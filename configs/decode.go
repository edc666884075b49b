package configs

import (
	"reflect"
	"sort"
	"strconv"
	"strings"
)

func sortStrings(s []string) { sort.Strings(s) }

// decoder fills Go values from a resolved tree. Values that do not fit are faults and stay unset.
type decoder struct {
	faults Errors
	strict bool // ??? is a fault

	memo     *memo // sections that have been decoded before
	learning bool  // memo is being filled
}

func (d *decoder) fault(n *Node, path, format string, args ...any) {
	e := errorAt(n.Origin, format, args...)
	if n.Origin.Line > 0 || n.Origin.Source == "default" {
		e.Msg = path + ": " + e.Msg
	}
	d.faults = append(d.faults, e)
}

func (d *decoder) into(v reflect.Value, f *field, n *Node, path string) {
	if n.isMissing() {
		if d.strict {
			e := errorAt(Origin{}, "%s must be given: set it with %s=VALUE", path, path)
			if n.Origin.Line > 0 {
				e.Where = n.Origin
			}
			d.faults = append(d.faults, e)
		}
		return
	}
	if f.kind == Null {
		if n.Kind == Null {
			v.SetZero()
			return
		}
		v.Set(reflect.ValueOf(n.value()))
		return
	}
	if v.Kind() == reflect.Pointer {
		if n.Kind == Null {
			v.SetZero()
			return
		}
		p := reflect.New(v.Type().Elem())
		if !v.IsNil() { // keys that the tree lacks keep their values
			p.Elem().Set(v.Elem())
		}
		v.Set(p)
		v = p.Elem()
	}
	switch f.kind {
	case Map:
		if n.Kind == Map {
			d.section(v, f, n, path)
		}
	case List:
		if n.Kind != List {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Vals), len(n.Vals)))
		for i, item := range n.Vals {
			d.into(v.Index(i), f.elem, item, path+"."+strconv.Itoa(i))
		}
	case Bool:
		if n.Kind == Bool {
			v.SetBool(n.Bool)
		}
	case String:
		if n.Kind == String {
			v.SetString(n.Text)
		}
	case Float:
		if x, ok := n.number(); ok && n.Kind != Bool {
			v.SetFloat(x)
		}
	case Int:
		if n.Kind == Int {
			d.integer(v, n, path)
		}
	}
}

func (d *decoder) integer(v reflect.Value, n *Node, path string) {
	if v.CanInt() {
		i, err := strconv.ParseInt(n.Text, 10, 64)
		if err != nil || v.OverflowInt(i) {
			d.fault(n, path, "%s is too large for an integer", n.Text)
			return
		}
		v.SetInt(i)
		return
	}
	u, err := strconv.ParseUint(n.Text, 10, 64)
	if err != nil || v.OverflowUint(u) {
		d.fault(n, path, "%s: want an integer from 0", n.Text)
		return
	}
	v.SetUint(u)
}

func (d *decoder) section(v reflect.Value, f *field, n *Node, path string) {
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Keys)))
		for i, k := range n.Keys {
			e := reflect.New(v.Type().Elem()).Elem()
			d.into(e, f.elem, n.Vals[i], path+"."+k.Text)
			v.SetMapIndex(reflect.ValueOf(k.Text).Convert(v.Type().Key()), e)
		}
		return
	}
	if d.memo != nil {
		if known, ok := d.memo.values[memoKey{f, n}]; ok {
			v.Set(known)
			return
		}
	}
	before := len(d.faults)
	for _, sf := range f.fields {
		if c := n.Get(sf.key); c != nil {
			d.into(v.FieldByIndex(sf.index), sf, c, strings.TrimPrefix(path+"."+sf.key, "."))
		}
	}
	if d.learning && len(d.faults) == before && d.memo.plain[n] && !n.hasMissing() {
		known := reflect.New(v.Type()).Elem()
		known.Set(v)
		d.memo.values[memoKey{f, n}] = known
	}
}

// DecodeHydra fills dst, a pointer to a struct with koanf tags, from the resolved node hydra.<path>
// (sweeper, launcher, job.config, …), as strictly as a schema does: unknown keys, wrong types, values
// outside enum: and range: tags, ??? and what Validate refuses are errors with their places, all in
// one. Keys that the node lacks keep the values of dst; _target_ and defaults, which name Hydra's own
// classes and configs, are passed over in every section. On error dst is unchanged.
func (c *Composed) DecodeHydra(path string, dst any) error {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return errorf("decode hydra.%s into %T: want a pointer to a struct", path, dst)
	}
	n, err := c.hydraValue(path)
	if err != nil || n == nil {
		return err
	}
	full := "hydra." + path
	f := &field{path: full}
	if err := f.describe(v.Elem().Type()); err != nil {
		return err
	}
	n = withoutTargets(f, n)
	root := &field{kind: Map}
	for at, parts := root, strings.Split(full, "."); len(parts) > 0; parts = parts[1:] {
		sub := &field{kind: Map, key: parts[0], path: strings.TrimPrefix(at.path+"."+parts[0], ".")}
		if len(parts) == 1 {
			f.key, sub = parts[0], f
		}
		at.fields = []*field{sub}
		at = sub
	}
	ck := &checker{schema: &Schema{root: root}, root: c.tree}
	n = ck.fit(f, n, full)
	filled := reflect.New(v.Elem().Type())
	filled.Elem().Set(v.Elem())
	if n.Kind == Map {
		d := &decoder{strict: true}
		d.into(filled.Elem(), f, n, full)
		ck.faults = append(ck.faults, d.faults...)
		ck.validate(filled.Elem(), f, n, full)
	}
	if err := ck.faults.err(); err != nil {
		return err
	}
	v.Elem().Set(filled.Elem())
	return nil
}

// withoutTargets leaves _target_ and defaults out of the sections of a node.
func withoutTargets(f *field, n *Node) *Node {
	section := f.fields != nil || f.typ != nil && f.typ.Kind() == reflect.Struct // a struct without fields too
	if n.Kind != Map || !section {
		return n
	}
	out := n
	for i, k := range n.Keys {
		if sub := f.sub(k.Text); sub != nil {
			out = out.replaced(n, i, n.Vals[i], withoutTargets(sub, n.Vals[i]))
		}
	}
	for _, key := range []string{"_target_", "defaults"} {
		if f.sub(key) == nil {
			out = out.without(key)
		}
	}
	return out
}
