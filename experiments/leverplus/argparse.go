package leverplus

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"fulcrum/internal/registry"
)

// Argument is one switch of a Python program's argparse parser.
type Argument struct {
	Name     string // without the dashes
	Key      string // config key; "" = no effect
	Kind     Kind
	choices  []string
	Initial  string // argparse's default, for -h and the docs; "" = None
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

// Parse reads args as Python's argparse does: --k=v and --k v, unambiguous prefixes, the last one
// wins, negative numbers are values, what begins with a dash otherwise is not. values holds what was given
// (numbers as the override grammar spells them), rest the positional arguments; values is nil after -h.
func Parse(known []Argument, args []string) (values map[string]string, rest []string, err error) {
	values = map[string]string{}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if !looksLikeOption(arg) {
			rest = append(rest, arg)
			continue
		}
		if arg == "-h" || arg == "--help" {
			return nil, nil, nil
		}
		name, inline, hasInline := strings.Cut(arg, "=")
		s, err := findSwitch(known, name)
		if err != nil {
			return nil, nil, err
		}
		if s == nil && hasInline {
			return nil, nil, fmt.Errorf("argument -h/--help: ignored explicit argument '%s'", inline)
		} else if s == nil { // a prefix of --help
			return nil, nil, nil
		}
		value := inline
		switch {
		case s.Kind == Flag && hasInline:
			return nil, nil, fmt.Errorf("argument --%s: ignored explicit argument '%s'", s.Name, inline)
		case s.Kind == Flag:
		case hasInline:
		case i+1 == len(args) || args[i+1] == "--" || looksLikeOption(args[i+1]):
			return nil, nil, fmt.Errorf("argument --%s: expected one argument", s.Name)
		default:
			i++
			value = args[i]
		}
		if values[s.Name], err = s.convert(value); err != nil {
			return nil, nil, err
		}
	}
	var missing []string
	for _, s := range known {
		if _, given := values[s.Name]; s.Required && !given {
			missing = append(missing, "--"+s.Name)
		}
	}
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf("the following arguments are required: %s", strings.Join(missing, ", "))
	}
	return values, rest, nil
}

// looksLikeOption is argparse's rule for parsers without options that look like negative numbers.
func looksLikeOption(arg string) bool {
	switch {
	case len(arg) < 2 || arg[0] != '-':
		return false
	case negativeNumber().MatchString(arg):
		return false
	case strings.Contains(arg, " "):
		return strings.HasPrefix(arg, "--") && strings.Contains(arg, "=") && !strings.Contains(arg[:strings.Index(arg, "=")], " ")
	}
	return true
}

func negativeNumber() *regexp.Regexp { return regexp.MustCompile(`^-\d+$|^-\d*\.\d+$`) }

// findSwitch returns the switch that an option names in full or by an unambiguous prefix; nil for --help.
func findSwitch(known []Argument, option string) (*Argument, error) {
	name, ok := strings.CutPrefix(option, "--")
	if !ok {
		name = strings.TrimPrefix(option, "-")
	}
	var names, matches []string
	var found *Argument
	for i, s := range known {
		names = append(names, "--"+s.Name)
		switch {
		case ok && s.Name == name:
			return &known[i], nil
		case ok && strings.HasPrefix(s.Name, name):
			matches, found = append(matches, "--"+s.Name), &known[i]
		}
	}
	if ok && strings.HasPrefix("help", name) {
		matches, found = append([]string{"--help"}, matches...), nil
	}
	switch {
	case len(matches) == 1:
		return found, nil
	case len(matches) > 1:
		return nil, fmt.Errorf("ambiguous option: %s could match %s", option, strings.Join(matches, ", "))
	}
	hint := ""
	sort.Strings(names)
	if near, ok := registry.Nearest("--"+name, names); ok {
		hint = " (did you mean " + near + "?)"
	}
	return nil, fmt.Errorf("unrecognized arguments: %s%s", option, hint)
}

// convert checks a value and spells numbers as the override grammar reads them.
func (s *Argument) convert(value string) (string, error) {
	invalid := func(what string) error {
		return fmt.Errorf("argument --%s: invalid %s value: '%s'", s.Name, what, value)
	}
	switch s.Kind {
	case Integer:
		digits, ok := pythonDigits(value)
		n, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil {
			return "", invalid("int")
		}
		return strconv.FormatInt(n, 10), nil
	case Float:
		digits, ok := pythonDigits(value)
		x, err := strconv.ParseFloat(digits, 64)
		if !ok || err != nil && !math.IsInf(x, 0) || strings.ContainsAny(digits, "xX") {
			return "", invalid("float")
		}
		switch {
		case x != x:
			return "nan", nil
		case math.IsInf(x, 1):
			return "inf", nil
		case math.IsInf(x, -1):
			return "-inf", nil
		}
		out := strconv.FormatFloat(x, 'g', -1, 64)
		if !strings.ContainsAny(out, ".e") {
			out += ".0"
		}
		return out, nil
	case Text:
		if s.choices != nil && !slices.Contains(s.choices, value) {
			hint := ""
			if near, ok := registry.Nearest(value, s.choices); ok {
				hint = " (did you mean " + near + "?)"
			}
			return "", fmt.Errorf("argument --%s: invalid choice: '%s' (choose from '%s')%s", s.Name, value,
				strings.Join(s.choices, "', '"), hint)
		}
	}
	return value, nil
}

// pythonDigits strips what int() and float() allow around and between digits.
func pythonDigits(value string) (string, bool) {
	value = strings.TrimSpace(value)
	for i, r := range value {
		if r != '_' {
			continue
		}
		digit := func(at int) bool { return at >= 0 && at < len(value) && value[at] >= '0' && value[at] <= '9' }
		if !digit(i-1) || !digit(i+1) {
			return "", false
		}
	}
	return strings.ReplaceAll(value, "_", ""), value != ""
}
