package phases

import (
	"maps"
	"reflect"
	"slices"
)

// Metrics are the named numbers of a row of metrics.jsonl. Units are part of a name's meaning: docs/metrics.md.
type Metrics map[string]any

// Measured holds a phase's numbers of a step or an epoch: a struct whose fields carry their names as tags.
type Measured interface {
	// Row returns the numbers by their names in metrics.jsonl. Row of this package does it for a struct.
	Row() Metrics
}

// Row implements Measured.
func (m Metrics) Row() Metrics { return m }

// Row returns the fields of a struct by their tag metric:"name", embedded structs included. A nil pointer is left out:
// no constant stands in for an unknown number. Each entry of a map is a number.
func Row(of any) Metrics {
	m := Metrics{}
	m.addFields(reflect.ValueOf(of))
	return m
}

func (m Metrics) addFields(v reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f, name := v.Field(i), t.Field(i).Tag.Get("metric")
		switch {
		case t.Field(i).Anonymous:
			m.addFields(f)
		case f.Kind() == reflect.Pointer && !f.IsNil():
			m.add(name, f.Elem())
		case f.Kind() == reflect.Map:
			for _, key := range f.MapKeys() {
				m.add(key.String(), f.MapIndex(key))
			}
		case f.Kind() != reflect.Pointer:
			m.add(name, f)
		}
	}
}

func (m Metrics) add(name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Float64:
		m[name] = v.Float()
	case reflect.Int:
		m[name] = int(v.Int())
	case reflect.Bool:
		m[name] = v.Bool()
	case reflect.Slice:
		m[name] = v.Interface().([]float64)
	}
}

// names returns the names of m in order, for messages.
func (m Metrics) names() []string { return slices.Sorted(maps.Keys(m)) }
