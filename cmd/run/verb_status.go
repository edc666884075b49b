package main

import (
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/usage"
)

// statusVerb prints how far a run or the jobs of a sweep are.
func statusVerb() *verb {
	f := usage.Flags()
	asJSON := jsonFlag(f)
	return &verb{
		usage: `run status outputs/quick
run status multirun/lr --json

run status SWEEP_OR_RUN_FOLDER [--json]
Prints how far a run or each job of a sweep is, and whether a process is at work
on it.
`,
		flags: f,
		takes: new(1),
		run: func(s *session, args []string) error {
			if err := runfolder.CheckExists(args[0]); err != nil {
				return err
			}
			if !*asJSON {
				return sweep.PrintStatus(args[0])
			}
			status, err := sweep.ReadStatus(args[0])
			if err != nil {
				return err
			}
			return writeJSON(s.out, status)
		},
	}
}
