package main

import (
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/usage"
)

// attachVerb follows a sweep until it ends.
func attachVerb() *verb {
	return &verb{
		usage: `run attach multirun/lr

run attach SWEEP_FOLDER
Follows a sweep that another process controls until it ends; takes over one that nobody controls.
`,
		flags: usage.Flags(),
		takes: new(1),
		run: func(s *session, args []string) error {
			controlled := runfolder.Locked(args[0])
			if err := sweep.Attach(s.ctx, s.app, args[0]); err != nil || controlled { // whoever controls it goes on
				return err
			}
			return s.goOn(args[0])
		},
	}
}
