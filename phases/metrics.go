package phases

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
)

// Metrics are the named numbers of a row of metrics.jsonl. Units are part of a name's meaning: docs/metrics.md.
type Metrics map[string]any

// Measured holds a phase's numbers of a step or an epoch: a struct whose fields carry their names as tags.
type Measured interface {
	// Row returns the numbers by their names in metrics.jsonl. Row of this package does it for a struct.
	Row() Metrics
}

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

// sums accumulates step metrics over an epoch. Every number is averaged over the steps that have it;
// lists (histograms) are added up. It is saved with a state in mid-epoch.
type sums struct {
	Total map[string]number    `json:"total"`
	Count map[string]int       `json:"count"`
	Lists map[string][]float64 `json:"lists"`
}

func newSums() sums {
	return sums{map[string]number{}, map[string]int{}, map[string][]float64{}}
}

func (s *sums) add(m Metrics) {
	if s.Total == nil {
		*s = newSums()
	}
	for name, v := range m {
		switch v := v.(type) {
		case float64:
			s.Total[name] += number(v)
			s.Count[name]++
		case int:
			s.Total[name] += number(v)
			s.Count[name]++
		case []float64:
			l := s.Lists[name]
			if l == nil {
				l = make([]float64, len(v))
			}
			for i, x := range v {
				l[i] += x
			}
			s.Lists[name] = l
		}
	}
}

// means returns the averages, and the sums of lists.
func (s sums) means() Metrics {
	m := Metrics{}
	for name, n := range s.Count {
		m[name] = float64(s.Total[name]) / float64(n)
	}
	for name, l := range s.Lists {
		m[name] = l
	}
	return m
}

// number is a float64 that JSON can hold: NaN and infinity are the strings "nan", "inf" and "-inf", as in
// metrics.jsonl. Runs with Env.AllowNonFinite go on with such numbers.
type number float64

func (x number) MarshalJSON() ([]byte, error) {
	switch f := float64(x); {
	case math.IsNaN(f):
		return []byte(`"nan"`), nil
	case math.IsInf(f, 1):
		return []byte(`"inf"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-inf"`), nil
	}
	return json.Marshal(float64(x))
}

func (x *number) UnmarshalJSON(text []byte) error {
	var word string
	if json.Unmarshal(text, &word) == nil {
		f, err := strconv.ParseFloat(word, 64)
		*x = number(f)
		return err
	}
	return json.Unmarshal(text, (*float64)(x))
}

// numbers returns m with its numbers as JSON can hold them.
func (m Metrics) numbers() Metrics {
	out := Metrics{}
	for name, x := range m {
		if f, ok := x.(float64); ok {
			x = number(f)
		}
		out[name] = x
	}
	return out
}
