package option

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Tags reports the fields of an option struct whose values their tags range and enum refuse; fields without a value, nil, pass. A composed
// configuration is checked by the same tags: this is for options that were made in Go.
func Tags(options any) error {
	var errs []error
	v := reflect.ValueOf(options)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			errs = append(errs, Tags(v.Field(i).Interface()))
			continue
		}
		interval, enum := field.Tag.Get("range"), field.Tag.Get("enum")
		for _, x := range valuesOf(v.Field(i)) {
			if enum != "" {
				errs = append(errs, OneOf(field.Tag.Get("koanf"), x.String(), strings.Split(enum, ",")...))
			}
			if interval == "" {
				continue
			}
			r, err := ParseRange(interval)
			if err == nil {
				err = Want(r.Holds(x.Convert(reflect.TypeFor[float64]()).Float()), field.Tag.Get("koanf"), "want a number in %s, got %v", r, x)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// valuesOf returns the values of a field: all of a list, none for nil.
func valuesOf(v reflect.Value) []reflect.Value {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Slice {
		return []reflect.Value{v}
	}
	var out []reflect.Value
	for i := range v.Len() {
		out = append(out, v.Index(i))
	}
	return out
}

// Range is an interval of numbers with open or closed ends.
type Range struct {
	low, high         float64
	lowOpen, highOpen bool
	text              string
}

// Holds reports whether a number lies in the interval.
func (r *Range) Holds(x float64) bool {
	if math.IsNaN(x) || x < r.low || x > r.high {
		return false
	}
	return !(r.lowOpen && x == r.low) && !(r.highOpen && x == r.high)
}

func (r *Range) String() string { return r.text }

// Short returns the range as a table shows it, such as " ≥ 1"; "" for all numbers.
func (r *Range) Short() string {
	low, high, _ := strings.Cut(strings.ReplaceAll(strings.Trim(r.text, "()[]"), " ", ""), ",")
	sign := map[bool]string{true: " ≥ ", false: " > "}[strings.HasPrefix(r.text, "[")]
	switch {
	case low == "-inf" && high == "inf":
		return ""
	case high == "inf":
		return sign + low
	}
	return " in " + strings.ReplaceAll(r.text, " ", "")
}

// ParseRange reads (0,1], [0,inf) and the like.
func ParseRange(s string) (*Range, error) {
	bad := fmt.Errorf("range %q: want (low,high), with [ or ] for a closed end", s)
	if len(s) < 5 || !strings.Contains("[(", s[:1]) || !strings.Contains("])", s[len(s)-1:]) {
		return nil, bad
	}
	low, high, ok := strings.Cut(s[1:len(s)-1], ",")
	if !ok {
		return nil, bad
	}
	r := &Range{lowOpen: s[0] == '(', highOpen: s[len(s)-1] == ')'}
	low, high = strings.TrimSpace(low), strings.TrimSpace(high)
	var err error
	if r.low, err = strconv.ParseFloat(low, 64); err != nil {
		return nil, bad
	}
	if r.high, err = strconv.ParseFloat(high, 64); err != nil {
		return nil, bad
	}
	// infinity itself lies outside, as the closing parenthesis of [0,inf) says
	r.text = s[:1] + low + ", " + high + s[len(s)-1:]
	return r, nil
}
