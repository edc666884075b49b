package main

import (
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/usage"
)

// attachVerb follows a sweep until it ends.
func attachVerb() *verb {
	return &verb{
		usage: usageOf("attach"),
		flags: usage.Flags(),
		run: func(s *session, args []string) error {
			if err := want(args, 1, "attach SWEEP_FOLDER"); err != nil {
				return err
			}
			controlled := runfolder.Locked(args[0])
			if err := sweep.Attach(s.ctx, s.app, args[0]); err != nil || controlled { // whoever controls it goes on
				return err
			}
			return s.goOn(args[0])
		},
	}
}
