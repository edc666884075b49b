//go:build !core

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"fulcrum/experiments/prove"
	"fulcrum/experiments/runfolder"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/build"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
	"fulcrum/reports/verify"
)

// proveVerb computes steps of a finished run again and compares bytes.
func proveVerb() *verb {
	var opt prove.Options
	f := usage.Flags()
	f.IntVar(&opt.Steps, "steps", 3, "steps to compare, drawn at random; 0: all there are")
	f.Int64Var(&opt.Seed, "seed", 0, "of the draw")
	f.BoolVar(&opt.FromStart, "from-start", false, "draw from the whole run, not from what follows its oldest kept state")
	return &verb{
		usage: `run prove outputs/quick

run prove RUN_FOLDER [--steps K] [--seed S] [--from-start]
Verifies a finished run's report, then trains again from a kept state, in a copy, killed once on the way, with another number
of processes and order of shards where steps have several. Drawn steps, and all checkpoints behind the state, must have the same
bytes; exit 1 if not. The report says what was proven.
`,
		flags: f,
		takes: new(1),
		run: func(s *session, args []string) error {
			if opt.Steps < 0 {
				return usage.Errorf("--steps=%d: want a number of steps, or 0 for all", opt.Steps)
			}
			dir := args[0]
			if err := runfolder.CheckExists(dir); err != nil {
				return err
			}
			if runfolder.Locked(dir) {
				return fmt.Errorf("%s: it is still being written: prove it when it has ended", dir)
			}
			if err := printVerification(s, dir, verify.VerifyOptions{Version: build.Name()}, false); err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			opt.Program = program
			said, err := prove.Run(s.ctx, dir, opt)
			if err != nil {
				return err
			}
			proof := record.Proof{Time: time.Now().Format(time.RFC3339), Version: build.Name(), Said: said}
			f.Visit(func(o *pflag.Flag) { proof.Options = append(proof.Options, fmt.Sprintf("--%s=%s", o.Name, o.Value)) })
			// it is said, too, where the folder cannot be written
			return cmp.Or(atomicfile.WriteJSON(filepath.Join(dir, record.ProofFile), proof), runreport.WriteReport(dir), s.write(said+"\n", nil))
		},
	}
}
