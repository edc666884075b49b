package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/secret"
)

// Error is one fault in a config or an override.
type Error struct {
	Where Origin // empty when the fault has no place
	Msg   string // what was found, what was expected, the nearest name
}

// Error hides the secrets of addresses: the place of an override is its text.
func (e *Error) Error() string {
	text := e.Msg
	if e.Where.Source != "" {
		text = e.Where.String() + ": " + e.Msg
	}
	const shown = 2000 // bytes: a key or a value may have millions
	if len(text) > 2*shown {
		text = strings.ToValidUTF8(text[:shown], "") + " … " + strings.ToValidUTF8(text[len(text)-shown:], "")
	}
	return secret.Mask(text)
}

func errorAt(o Origin, format string, args ...any) *Error {
	return &Error{o, fmt.Sprintf(format, args...)}
}

func errorf(format string, args ...any) *Error { return &Error{Msg: fmt.Sprintf(format, args...)} }

// Errors are all the faults found, sorted by position, one line each.
type Errors []*Error

func (e Errors) Error() string {
	return strings.Join(list.Map(e, func(x *Error) string { return x.Error() }), "\n")
}

// err sorts the faults and returns them as one error, nil when there are none.
func (e Errors) err() error {
	switch len(e) {
	case 0:
		return nil
	case 1:
		return e[0]
	}
	slices.SortStableFunc(e, func(x, y *Error) int {
		a, b := x.Where, y.Where
		switch {
		case a.Line == 0 && b.Line == 0: // overrides, as typed
			return 0
		case a.Line == 0 || b.Line == 0: // files first, overrides after
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(strings.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return e
}

// Foreign returns the first fault of err that is a section or key of a file which the program does not have; nil for none. A tree with
// one may be another program's.
func Foreign(err error) error {
	for _, e := range flatten(err) {
		if key, ok := strings.CutPrefix(e.Msg, "unknown key "); ok && e.Where.Line > 0 {
			if key, _, _ = strings.Cut(key, " "); !strings.Contains(strings.TrimSuffix(key, ":"), ".") {
				return e
			}
		}
	}
	return nil
}
