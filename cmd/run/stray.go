package main

import (
	"errors"
	"strings"

	"fulcrum/configs"
	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
)

// This file answers words that are neither flags nor overrides: exp okvqa_v3, --seed 3.

// overrides refuses arguments that are neither a verb nor an override.
func (s *session) overrides(req configs.Request) error {
	verbs := s.verbs.Names()
	for i, a := range req.Overrides {
		if strings.Contains(a, "=") || strings.HasPrefix(a, "~") {
			continue
		}
		if near, ok := registry.Nearest(a, verbs); ok && i == 0 {
			return usage.Errorf("%q is neither a command nor an override key=value (did you mean %s?)", a, near)
		}
		if before := append([]string{""}, req.Overrides...)[i]; strings.HasSuffix(before, "=") && len(before) > 1 { // grpo.lr= 1e-3
			return usage.Errorf("%q is neither an override key=value nor a command (did you mean %s%s?)", a, before, a)
		}
		a, value := spaced(a, req.Overrides[i+1:])
		if meant := configs.Settings(req, a, value); len(meant) > 0 {
			return usage.Errorf("%q is neither an override key=value nor a command (did you mean %s?)", a, strings.Join(meant, " or "))
		}
		return usage.Errorf("%q is neither an override key=value nor a command: want one of %s", a, strings.Join(verbs, ", "))
	}
	return nil
}

// spaced returns the key and the value of what was written apart: grpo.lr 1e-3, grpo.lr = 1e-3, grpo.lr =1e-3, grpo.lr:1e-3.
func spaced(word string, after []string) (key, value string) {
	switch {
	case len(after) > 1 && after[0] == "=":
		return word, after[1]
	case len(after) > 0 && len(after[0]) > 1 && after[0][0] == '=':
		return word, after[0][1:]
	case len(after) > 0 && isWord(after[0]):
		return word, after[0]
	}
	if key, value, ok := strings.Cut(word, ":"); ok && key != "" {
		return key, value
	}
	return word, ""
}

// flagError is a flag that the program does not have.
type flagError struct {
	msg, name string // name with its dashes
	near      bool   // one of ours is
}

func (e *flagError) Error() string { return e.msg }

// ExitCode returns 2, as of every mistake in a command line.
func (e *flagError) ExitCode() int { return 2 }

// withoutDashes adds to the fault of an unknown flag the override that it stands for: settings have no dashes.
func (s *session) withoutDashes(err error, args []string) error {
	var unknown *flagError
	if !errors.As(err, &unknown) || unknown.near {
		return err
	}
	value := ""
	for i, a := range args {
		name, given, ok := strings.Cut(a, "=")
		if name != unknown.name {
			continue
		}
		if value = given; !ok && i+1 < len(args) && isWord(args[i+1]) {
			value = args[i+1]
		}
	}
	schema, serr := s.app.Schema()
	if serr != nil {
		return err
	}
	if meant := configs.Settings(configs.Request{Library: configs.Library(), Schema: schema}, unknown.name, value); len(meant) > 0 {
		return usage.Errorf("%s: settings are written without dashes (did you mean %s?)", unknown.msg, strings.Join(meant, " or "))
	}
	return usage.Errorf("%s: `run --help` lists groups and keys, `run --hydra-help` the flags", unknown.msg)
}
