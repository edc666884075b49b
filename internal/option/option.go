// Package option is how an option struct reports a bad value: with the key relative to itself.
// The configs package prefixes the section's path and finds the file, line and column.
package option

import "fmt"

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
