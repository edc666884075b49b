// Package usage holds the error for a mistake in what the user asked for: the program ends with exit code 2 and
// nothing has run.
package usage

import (
	"errors"
	"fmt"
	"io/fs"
)

// Error is a mistake in a command line, in a file that it names, or in how settings fit together.
type Error struct{ Msg string }

func (e *Error) Error() string { return e.Msg }

// ExitCode returns 2, the code of a command that ran nothing.
func (e *Error) ExitCode() int { return 2 }

// Errorf returns an Error with a formatted message.
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Reason returns err without the path of an fs.PathError, for messages that name the path already.
func Reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
