package usage

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/internal/registry"
)

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
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		flag, want := invalid.GetFlag(), "another value"
		if flag.Value.Type() == "int" {
			want = "a whole number"
		}
		return Errorf("%s: --%s %s: want %s; `%[1]s --help` says what it takes", command, flag.Name, invalid.GetValue(), want)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
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
