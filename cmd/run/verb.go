package main

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/internal/program"
	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
)

// verb is a command beside overrides. What --help prints, completion and docs/commands.md come from its fields.
type verb struct {
	usage string         // its forms, one a line, with their effects
	flags *pflag.FlagSet // nil: run gets every argument
	words []string       // choices of its first argument, for completion; nil: a path
	takes *int           // how many arguments; nil: run looks
	run   func(s *session, args []string) error

	overrides bool // its arguments are those of a run, for completion
}

// newVerb makes a verb whose flags are not set yet.
type newVerb func() *verb

// verbs returns the commands beside overrides, those of annexes among them.
func verbs(more map[string]newVerb) *registry.Table[newVerb] {
	t := registry.New[newVerb]("command")
	t.Add("attach", attachVerb)
	t.Add("checkpoint", checkpointVerb)
	t.Add("data", dataVerb)
	t.Add("doctor", doctorVerb)
	t.Add(explainName, explainVerb)
	t.Add("report", reportVerb)
	t.Add("resume", resumeVerb)
	t.Add("status", statusVerb)
	for name, verb := range more {
		t.Add(name, verb)
	}
	return t
}

func (s *session) isVerb(name string) bool { return slices.Contains(s.verbs.Names(), name) }

// verb does a command.
func (s *session) verb(name string, args []string) error {
	newVerb, err := s.verbs.Get(name)
	if err != nil {
		return err
	}
	v := newVerb()
	if slices.ContainsFunc(args, func(arg string) bool { return arg == "--help" || arg == "-h" }) && v.usage != "" {
		return s.write(folded(calledAs(v.usage, program.Name(), s.verbs.Names())), nil)
	}
	if v.flags == nil {
		return v.run(s, args)
	}
	if err := v.flags.Parse(args); err != nil {
		return usage.OfFlags("run "+name, v.flags, err)
	}
	args = v.flags.Args()
	if err := cmp.Or(asFlag(name, v.flags, args), joinedPath(args)); err != nil {
		return err
	}
	if v.takes != nil && len(args) != *v.takes {
		return usage.Errorf("want: `%s`", v.form())
	}
	return v.run(s, args)
}

// form is what a command of one form takes: the line of its usage behind the examples.
func (v *verb) form() string {
	_, text, _ := strings.Cut(v.usage, "\n\n")
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// jsonFlag adds --json to a command's flags.
func jsonFlag(f *pflag.FlagSet) *bool { return f.Bool("json", false, "print one JSON document") }

// writeJSON prints one JSON document.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
