// Package option is how an option struct reports a bad value: with the key relative to itself.
// The configs package prefixes the section's path and finds the file, line and column.
package option

import (
	"fmt"
	"slices"
	"strings"

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

// Errorf returns an *Error for key.
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
