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
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
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
	for _, sf := range f.fields {
		if c := n.Get(sf.key); c != nil {
			d.into(v.FieldByIndex(sf.index), sf, c, strings.TrimPrefix(path+"."+sf.key, "."))
		}
	}
}
