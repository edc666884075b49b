package main

import (
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
)

// statusVerb prints how far a run or the jobs of a sweep are.
func statusVerb() *verb {
	return &verb{
		usage: `run status SWEEP_OR_RUN_FOLDER
Prints how far a run or each job of a sweep is, and whether a process is at work on it.
`,
		flags: noFlags(),
		run: func(s *session, args []string) error {
			if err := want(args, 1, "status SWEEP_OR_RUN_FOLDER"); err != nil {
				return err
			}
			if err := runfolder.CheckExists(args[0]); err != nil {
				return err
			}
			return sweep.PrintStatus(args[0])
		},
	}
}
