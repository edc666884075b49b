//go:build !core

package main

import (
	"fmt"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/leverplus"
	"fulcrum/internal/program"
	"fulcrum/internal/usage"
)

// leverPlusVerb runs exp=lever_plus_compat as the Python reference's command line asks.
func leverPlusVerb() *verb { return &verb{usage: leverplus.Help(), run: leverPlus} }

// leverPlus reads the switches as argparse does, which takes prefixes of names and spells of numbers that pflag does not.
func leverPlus(s *session, args []string) error {
	values, rest, err := leverplus.Parse(leverplus.Switches(), args)
	if err != nil {
		return usage.Errorf("lever-plus: %v", err)
	}
	if values == nil {
		return s.write(leverplus.Help(), nil)
	}
	overrides, notices, err := leverplus.Overrides(values)
	if err != nil {
		return err
	}
	for _, arg := range rest {
		if !strings.Contains(arg, "=") && !strings.HasPrefix(arg, "~") {
			return usage.Errorf("lever-plus: %q is neither a switch of the reference nor an override key=value", arg)
		}
	}
	schema, err := s.app.Schema()
	if err != nil {
		return err
	}
	overrides = append(overrides, rest...)
	c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: overrides, Now: s.now, AppName: "run",
		Warn: func(message string) { fmt.Fprintln(s.errOut, "warning: "+message) }})
	if err != nil {
		return err
	}
	for _, notice := range notices {
		fmt.Fprintln(s.errOut, "lever-plus: "+notice)
	}
	fmt.Fprintln(s.out, program.Quoted(append([]string{"run"}, overrides...)...))
	return s.app.Run(s.ctx, c)
}
