//go:build !core

package main

import (
	"errors"
	"fmt"
	"os"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/views"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/compare"
)

// differError ends run diff with exit code 1, as diff(1) ends where its files differ.
type differError struct{ verdict string }

func (e *differError) Error() string { return e.verdict }

// ExitCode returns 1: a result, not a mistake in the command.
func (e *differError) ExitCode() int { return 1 }

// diffVerb says what differs between two runs, two sweeps or two config files.
func diffVerb() *verb {
	f := usage.Flags()
	asJSON := jsonFlag(f)
	return &verb{
		usage: `run diff outputs/quick outputs/slow
run diff mine.yaml theirs.yaml

run diff A B [--json]
Names the settings, data and code versions that differ between two run folders, two sweep folders or two config
files. Paths, logging, the hydra node and vars change no result themselves: they are listed apart and do not count. Links are
followed: what a key of vars feeds is a setting. Exit code 0: no difference
that counts; 1: a difference; 2: A or B is something else.
`,
		flags: f,
		takes: new(2),
		run: func(s *session, args []string) error {
			var sides [2]compare.DiffSide
			for i, path := range args {
				var err error
				if sides[i], err = diffSide(path); err != nil {
					return err
				}
			}
			diff, err := compare.DiffOf(sides[0], sides[1])
			if err != nil {
				return err
			}
			if *asJSON {
				err = writeJSON(s.out, diff)
			} else {
				err = diff.WriteText(s.out, stdout.Width())
			}
			if err != nil {
				return err
			}
			if !diff.Same {
				return &differError{diff.Verdict()}
			}
			if !*asJSON {
				fmt.Fprintln(s.out, "\n"+diff.Verdict())
			}
			return nil
		},
	}
}

// diffSide reads what a path holds: a sweep, a run or a config file. What it cannot be is a mistake in the command.
func diffSide(path string) (compare.DiffSide, error) {
	info, err := os.Stat(path)
	if err != nil {
		return compare.DiffSide{}, usage.Errorf("%s: %v%s: want a run folder, a sweep folder or a config file", path,
			errors.Unwrap(err), nearpath.Hint(path))
	}
	if !info.IsDir() {
		side, err := compare.ReadDiffConfig(path)
		if err != nil {
			return side, usage.Errorf("%v", err)
		}
		return side, nil
	}
	if err := sweep.LostLedger(path); err != nil {
		return compare.DiffSide{}, err
	}
	switch {
	case ledger.Exists(path):
		return views.ReadDiff(path)
	case runfolder.IsRun(path):
		return compare.ReadDiffRun(path)
	}
	return compare.DiffSide{}, runfolder.NoRun(path)
}
