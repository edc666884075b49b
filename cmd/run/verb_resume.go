package main

import (
	"strconv"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/program"
	"fulcrum/internal/usage"
)

// detachFlag leaves a sweep to a process of its own.
const detachFlag = "--detach"

// processesKey and backendKey may be given anew when a run goes on: no number depends on them.
const (
	processesKey = "parallel.processes"
	backendKey   = "parallel.backend"
)

// resumeVerb goes on with a run or a sweep.
func resumeVerb() *verb {
	f := usage.Flags()
	accept := f.Bool(sweep.AcceptChanges[2:], false, "go on although the configuration files have changed")
	detached := f.Bool(detachFlag[2:], false, "leave the sweep to a process of its own")
	return &verb{
		usage: `run resume outputs/quick
run resume multirun/lr hydra.sweeper.n_trials=80

run resume RUN_FOLDER [parallel.processes=N] [parallel.backend=tcp|nccl]
run resume SWEEP_FOLDER [` + sweep.AcceptChanges + `] [` + detachFlag + `] [hydra.sweeper.n_trials=N] [hydra/launcher=NAME] …
Goes on with an interrupted run from its last state, or runs what is missing of a sweep and retries what has failed.
` + sweep.AcceptChanges + ` lets a sweep go on although its configuration files have changed, with this build of the program;
` + detachFlag + ` leaves it to a process of its own. How a sweep runs and is judged may be given anew,
what its jobs compute may not (docs/sweeps.md).
`,
		flags: f,
		run: func(s *session, args []string) error {
			r := sweep.Resumption{Retry: true, Accept: *accept, Detached: *detached}
			var dirs []string
			processes, backend := 0, ""
			for _, arg := range args {
				if n, ok := strings.CutPrefix(arg, processesKey+"="); ok {
					var err error
					if processes, err = strconv.Atoi(n); err != nil || processes < 1 {
						return usage.Errorf("%s: want a number of processes, from 1", arg)
					}
					continue
				}
				if to, ok := strings.CutPrefix(arg, backendKey+"="); ok {
					if backend = to; to != "tcp" && to != "nccl" {
						return usage.Errorf("%s: want tcp or nccl", arg)
					}
					continue
				}
				if strings.HasPrefix(strings.TrimLeft(arg, "+~"), "hydra") && strings.Contains(arg, "=") {
					r.Overrides = append(r.Overrides, arg)
				} else {
					dirs = append(dirs, arg)
				}
			}
			if len(dirs) == 2 && strings.Contains(dirs[1], "=") {
				return usage.Errorf("%s: a resumed run keeps its configuration; to begin a new run where %s ended: %s",
					dirs[1], dirs[0], program.Command("init.checkpoint="+dirs[0], dirs[1]))
			}
			if err := want(dirs, 1, "resume RUN_FOLDER`, or `run resume SWEEP_FOLDER ["+sweep.AcceptChanges+"] ["+detachFlag+
				"] [hydra.sweeper.n_trials=N]"); err != nil {
				return err
			}
			dir := dirs[0]
			if err := runfolder.CheckExists(dir); err != nil {
				return err
			}
			if sweep.Exists(dir) {
				if err := sweep.Resume(s.ctx, s.app, dir, r); err != nil || r.Detached {
					return err
				}
				return s.goOn(dir)
			}
			if err := sweep.LostLedger(dir); err != nil {
				return err
			}
			if len(r.Overrides) > 0 || f.NFlag() > 0 {
				return usage.Errorf("%s: flags and overrides are for sweeps; there is none", dir)
			}
			return s.app.Resume(s.ctx, dir, processes, backend)
		},
	}
}
