package main

import (
	"encoding/json"
	"io"
	"slices"

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
	if err := asFlag(name, v.flags, v.flags.Args()); err != nil {
		return err
	}
	if err := joinedPath(v.flags.Args()); err != nil {
		return err
	}
	return v.run(s, v.flags.Args())
}

// want checks the number of a command's arguments.
func want(args []string, n int, form string) error {
	if len(args) != n {
		return usage.Errorf("want: `run %s`", form)
	}
	return nil
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
