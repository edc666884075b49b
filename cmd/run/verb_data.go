package main

import (
	"fmt"

	"fulcrum/beamdata"
	"fulcrum/internal/usage"
)

// dataVerb reports what a file of data holds.
func dataVerb() *verb {
	return &verb{
		usage: `run data inspect PATH
Reports what a beam file, embedding table, reward table, or a file of conversations or texts holds, and the first
fault for which a run would refuse it (exit code 1).
`,
		flags: noFlags(),
		words: []string{"inspect"},
		run: func(s *session, args []string) error {
			if len(args) != 2 || args[0] != "inspect" {
				return usage.Errorf("want: run data inspect PATH")
			}
			report, err := beamdata.Inspect(args[1], 0, beamdata.DefaultOptions())
			if err != nil {
				return err
			}
			report.Write(s.out)
			if report.Faulty() {
				return fmt.Errorf("%s: a run would refuse this", args[1])
			}
			return nil

		},
	}
}
