package configs

import (
	"reflect"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// decoded is a struct and the tree that it was decoded from.
type decoded struct {
	value reflect.Value
	tree  *Node
}

// with returns a copy of the struct that holds the values of n, a section of type f. Only what n does not share
// with d's tree is decoded. A value that is ??? or has the wrong type stays zero.
func (d decoded) with(f *field, n *Node) (reflect.Value, error) {
	v := reflect.New(d.value.Type()).Elem()
	v.Set(d.value)
	values := f.changes(v, n, d.tree)
	if len(values) == 0 {
		return v, nil
	}
	k, err := held(values)
	if err != nil {
		return v, err
	}
	return v, take(k, v)
}

func held(values map[string]any) (*koanf.Koanf, error) {
	k := koanf.New(".")
	return k, k.Load(provider(values), nil)
}

// take decodes what k holds into v, a struct. Keys that v has no field for are passed over: a section apart takes them.
func take(k *koanf.Koanf, v reflect.Value) error {
	return k.UnmarshalWithConf("", v.Addr().Interface(), koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName: "koanf", Squash: true, MatchName: func(key, field string) bool { return key == field },
	}})
}

type provider map[string]any

func (p provider) Read() (map[string]any, error) { return p, nil }
func (p provider) ReadBytes() ([]byte, error)    { return nil, errorf("not bytes") }

// changes returns the values of section n that was, of the same section, does not share, and zeroes them in v: the
// lists and maps there belong to others.
func (f *field) changes(v reflect.Value, n, was *Node) map[string]any {
	out := map[string]any{}
	for _, c := range f.fields {
		if c.index == nil { // a free section, or its kind
			continue
		}
		is, to := n.Get(c.key), v.FieldByIndex(c.index)
		switch {
		case is == nil || is == was.Get(c.key):
		case is.Kind == Map && c.kind == Map && c.elem == nil: // a section: keys that n lacks keep their values
			if to.Kind() == reflect.Pointer {
				own := reflect.New(to.Type().Elem())
				if !to.IsNil() {
					own.Elem().Set(to.Elem())
				}
				to.Set(own)
				to = own.Elem()
			}
			if below := c.changes(to, is, was.Get(c.key)); len(below) > 0 {
				out[c.key] = below
			}
		default:
			to.SetZero()
			if !is.isMissing() {
				out[c.key] = is.value()
			}
		}
	}
	return out
}

// given faults every value of n that is still ???.
func (c *checker) given(n *Node, path string) {
	if n.isMissing() {
		e := errorAt(Origin{}, "%s must be given: set it with %s=VALUE", path, path)
		if n.Origin.Line > 0 {
			e.Where = n.Origin
		}
		c.faults = append(c.faults, e)
	}
	for i, v := range n.Vals {
		c.given(v, strings.TrimPrefix(path+"."+n.keyAt(i), "."))
	}
}

// structAt returns the struct that dst points at.
func structAt(dst any) (reflect.Value, error) {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return v, errorf("%T: want a pointer to a struct", dst)
	}
	return v.Elem(), nil
}

// Decode fills a pointer to a struct with koanf tags from the resolved job config, beginning with the defaults of a schema of that
// struct. A value that is still ??? is an error that says how to give it.
func (c *Composed) Decode(dst any) error {
	n, err := c.Resolved()
	if err != nil {
		return err
	}
	v, err := structAt(dst)
	if err != nil {
		return err
	}
	ck := &checker{}
	if ck.given(n, ""); len(ck.faults) > 0 {
		return ck.faults.err()
	}
	s := c.base.schema
	if s == nil || s.root.typ != v.Type() {
		s = &Schema{root: &field{kind: Map}, defaults: decoded{value: v}}
		if err := s.root.describe(v.Type()); err != nil {
			return err
		}
	}
	filled, err := s.decode(s.defaults, n)
	if err == nil {
		v.Set(filled)
	}
	return err
}

// DecodeHydra fills dst, a pointer to a struct with koanf tags, from the resolved node hydra.<path>
// (sweeper, launcher, job.config, …), as strictly as a schema does: unknown keys, wrong types, values
// outside enum: and range: tags, ??? and what Validate refuses are errors with their places, all in
// one. Keys that the node lacks keep the values of dst; _target_ and defaults, which name Hydra's own
// classes and configs, are passed over in every section. On error dst is unchanged.
func (c *Composed) DecodeHydra(path string, dst any) error {
	v, err := structAt(dst)
	if err != nil {
		return err
	}
	n, err := c.hydraValue(path)
	if err != nil || n == nil {
		return err
	}
	full := "hydra." + path
	f := &field{path: full}
	if err := f.describe(v.Type()); err != nil {
		return err
	}
	n = withoutTargets(f, n)
	root := f // the sections around it follow
	for parts := strings.Split(full, "."); len(parts) > 0; parts = parts[:len(parts)-1] {
		root.key = parts[len(parts)-1]
		root = &field{kind: Map, path: strings.Join(parts[:len(parts)-1], "."), fields: []*field{root}}
	}
	ck := &checker{schema: &Schema{root: root}, root: c.tree}
	n = ck.fit(f, n, full)
	ck.given(n, full)
	filled, err := decoded{value: v}.with(f, n)
	if err != nil && len(ck.faults) == 0 {
		return err
	}
	ck.validate(filled, f, n, full)
	if err := ck.faults.err(); err != nil {
		return err
	}
	v.Set(filled)
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
