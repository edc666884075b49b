// Package usage holds the error for a mistake in what the user asked for: the program ends with exit code 2 and
// nothing has run.
package usage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/internal/registry"
)

// Error is a mistake in a command line, in a file that it names, or in how settings fit together.
type Error struct{ Msg string }

func (e *Error) Error() string { return e.Msg }

// ExitCode returns 2, the code of a command that ran nothing.
func (e *Error) ExitCode() int { return 2 }

func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Reason returns err without the path of an fs.PathError, for messages that name the path already.
func Reason(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// Flags returns a set of flags to be filled.
func Flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {}
	return f
}

// OfFlags words what pflag says of a command's flags, with the nearest flag or all that there are. The command is named with its
// program: run board.
func OfFlags(command string, f *pflag.FlagSet, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag, wants := invalid.GetFlag(), map[string]string{"int": "a whole number", "float64": "a number", "duration": "a time, as in 2h or 90m"}
		return Errorf("%s: --%s %s: want %s; `%[1]s --help` says what it takes", command, flag.Name, invalid.GetValue(),
			cmp.Or(wants[flag.Value.Type()], "another value"))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return Errorf("%s: %v; `%[1]s --help` says what it takes", command, err)
	}
	name := "--" + unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		name = "-" + short
	}
	hint, known := "it has none", LongFlags(f)
	if len(known) > 0 {
		hint = "want " + strings.Join(known, ", ")
	}
	if near, ok := registry.Nearest(name, known); ok {
		hint = "did you mean " + near + "?"
	}
	return Errorf("%s: unknown flag %s (%s); `%[1]s --help` says what it takes", command, name, hint)
}

// LongFlags lists the flags of a set with two dashes, without the hidden ones.
func LongFlags(f *pflag.FlagSet) []string {
	var out []string
	f.VisitAll(func(fl *pflag.Flag) {
		if !fl.Hidden {
			out = append(out, "--"+fl.Name)
		}
	})
	return out
}
