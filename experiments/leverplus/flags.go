package leverplus

import (
	"github.com/spf13/pflag"

	"fulcrum/internal/usage"
)

// Argument is one switch of the Python program.
type Argument struct {
	Name     string // without the dashes
	Key      string // config key; "" = no effect
	Kind     Kind
	choices  []string
	Initial  string // the reference's default, for -h and the docs; "" = None
	Value    string // what a flag sets key to
	Required bool
	help     string
}

// Kind is the type of a switch's value.
type Kind int

const (
	Text Kind = iota
	Integer
	Float
	Flag
)

// Flags returns the switches as flags. Their values are text: the keys that they set know their types.
func Flags() *pflag.FlagSet {
	f := usage.Flags()
	for _, s := range Switches() {
		if s.Kind == Flag {
			f.Bool(s.Name, false, s.help)
		} else {
			f.String(s.Name, s.Initial, s.help)
		}
	}
	return f
}

// Given returns the switches that a command line has set.
func Given(f *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	f.Visit(func(s *pflag.Flag) { values[s.Name] = s.Value.String() })
	return values
}
