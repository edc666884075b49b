//go:build !core

package main

import (
	"fmt"
	"strings"

	"fulcrum/experiments/leverplus"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/usage"
)

// leverPlusVerb runs exp=lever_plus_compat as the Python reference's command line asks.
func leverPlusVerb() *verb { return &verb{usage: leverplus.Help(), run: leverPlus} }

// leverPlus reads the switches, whose names may be cut short as with argparse.
func leverPlus(s *session, args []string) error {
	f := leverplus.Flags()
	if err := f.Parse(list.Map(args, func(arg string) string { return unabbreviated(f, arg) })); err != nil {
		return usage.OfFlags("run lever-plus", f, err)
	}
	overrides, notices, err := leverplus.Overrides(leverplus.Given(f))
	if err != nil {
		return err
	}
	for _, arg := range f.Args() {
		if !strings.Contains(arg, "=") && !strings.HasPrefix(arg, "~") {
			return usage.Errorf("lever-plus: %q is neither a switch of the reference nor an override key=value", arg)
		}
	}
	overrides = append(overrides, f.Args()...)
	c, err := s.composed(overrides)
	if err != nil {
		return err
	}
	for _, notice := range notices {
		fmt.Fprintln(s.errOut, "lever-plus: "+notice)
	}
	fmt.Fprintln(s.out, program.Quoted(append([]string{"run"}, overrides...)...))
	return s.app.Run(s.ctx, c)
}
