//go:build !core

package main

import (
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/usage"
)

// watchVerb shows a run or a sweep while it goes on.
func watchVerb() *verb {
	return &verb{
		usage: `run watch outputs/quick

run watch RUN_OR_SWEEP_FOLDER
Shows how a run or a sweep goes, until it ends: epochs, curves, memory, findings,
or the table of jobs. Ctrl-C ends the watching, not the run.
`,
		flags: usage.Flags(),
		takes: new(1),
		run: func(s *session, args []string) error {
			if err := runfolder.CheckExists(args[0]); err != nil {
				return err
			}
			return sweep.Watch(args[0])
		},
	}
}
