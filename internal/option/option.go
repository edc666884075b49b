// Package option is how an option struct reports a bad value: with the key relative to itself.
// The configs package prefixes the section's path and finds the file, line and column.
package option

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// Error says what is wrong with one key of an option struct.
type Error struct {
	Key string // relative to the struct, dotted; empty = the struct itself
	Msg string // "want …, got …"
}

func (e *Error) Error() string {
	if e.Key == "" {
		return e.Msg
	}
	return e.Key + ": " + e.Msg
}

func Errorf(key, format string, args ...any) error {
	return &Error{Key: key, Msg: fmt.Sprintf(format, args...)}
}

// OneOf reports a value of key that is not among names, with the nearest one.
func OneOf(key, value string, names ...string) error {
	if slices.Contains(names, value) {
		return nil
	}
	return Errorf(key, "want one of %s, got %q%s", strings.Join(names, ", "), value, registry.DidYouMean(registry.Suggest(value, names)))
}

// Choose returns the entry of a table that has the name value; the error names key and the choices.
func Choose[T any](key, value string, table []T, name func(T) string) (chosen T, err error) {
	i := slices.IndexFunc(table, func(e T) bool { return name(e) == value })
	if i < 0 {
		return chosen, OneOf(key, value, list.Map(table, name)...)
	}
	return table[i], nil
}

// Or returns *value, or otherwise if value is nil (a key that is null).
func Or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// Want reports key where its condition does not hold.
func Want(holds bool, key, format string, args ...any) error {
	if holds {
		return nil
	}
	return Errorf(key, format, args...)
}

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
	return list.Make(v.Len(), v.Index)
}

// Range is an interval of numbers with open or closed ends.
type Range struct {
	low, high         float64
	lowOpen, highOpen bool
	text              string
}

// Holds reports whether a number lies in the interval.
func (r *Range) Holds(x float64) bool {
	return x >= r.low && x <= r.high && !(r.lowOpen && x == r.low) && !(r.highOpen && x == r.high) // never of NaN
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
	var noLow, noHigh error
	r.low, noLow = strconv.ParseFloat(low, 64)
	if r.high, noHigh = strconv.ParseFloat(high, 64); noLow != nil || noHigh != nil {
		return nil, bad
	}
	// infinity itself lies outside, as the closing parenthesis of [0,inf) says
	r.text = s[:1] + low + ", " + high + s[len(s)-1:]
	return r, nil
}
