package main

import (
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/program"
	"fulcrum/internal/usage"
)

// resumeVerb goes on with a run or a sweep.
func resumeVerb() *verb {
	f := usage.Flags()
	accept := f.Bool(sweep.AcceptChanges[2:], false, "go on although the configuration files have changed")
	detached := f.Bool("detach", false, "leave the sweep to a process of its own")
	return &verb{
		usage: `run resume outputs/quick
run resume multirun/lr hydra.sweeper.n_trials=80

run resume RUN_FOLDER [parallel.processes=N] [lvlm.url=ADDRESS] …
run resume SWEEP_FOLDER [` + sweep.AcceptChanges + `] [--detach] [hydra.sweeper.n_trials=N] [hydra/launcher=NAME] …
Goes on with an interrupted run from its last state, or runs what is missing of a sweep and retries what has failed. A run may go on
with others, from then on, of these keys: checks, on_end, parallel.processes, backend and timeout_seconds, lvlm.url, key_env, concurrency,
timeout_seconds, retries and store, checkpoint.on_damage and keep_states, optim.state=offload.
` + sweep.AcceptChanges + ` lets a sweep go on although its configuration files have changed, with this build of the program;
--detach leaves it to a process of its own. How a sweep runs and is judged may be given anew,
what its jobs compute may not (docs/sweeps.md).
`,
		flags: f,
		run: func(s *session, args []string) error {
			r := sweep.Resumption{Retry: true, Accept: *accept, Detached: *detached}
			var dirs, keys []string
			for _, arg := range args {
				switch {
				case strings.HasPrefix(strings.TrimLeft(arg, "+~"), "hydra") && strings.Contains(arg, "="):
					r.Overrides = append(r.Overrides, arg)
				case len(dirs) > 0 && strings.Contains(arg, "="):
					keys = append(keys, arg)
				case strings.Contains(arg, "=") && runfolder.CheckExists(arg) != nil:
					return usage.Errorf("%s: want the folder first: %s", arg, program.Command("resume", "RUN_FOLDER", arg))
				default:
					dirs = append(dirs, arg)
				}
			}
			if len(dirs) != 1 {
				return usage.Errorf("want: `run resume RUN_FOLDER [KEY=VALUE …]`, or `run resume SWEEP_FOLDER [%s] [--detach] "+
					"[hydra.sweeper.n_trials=N]`", sweep.AcceptChanges)
			}
			dir := dirs[0]
			if err := runfolder.CheckExists(dir); err != nil {
				return err
			}
			if sweep.Exists(dir) {
				if len(keys) > 0 {
					return usage.Errorf("%s: a resumed sweep keeps its jobs' keys: those of hydra may be given anew (docs/sweeps.md)",
						program.Quoted(keys...))
				}
				if err := sweep.Resume(s.ctx, s.app, dir, r); err != nil || r.Detached {
					return err
				}
				return s.goOn(dir)
			}
			if err := sweep.LostLedger(dir); err != nil {
				return err
			}
			if len(r.Overrides) > 0 || f.NFlag() > 0 {
				return usage.Errorf("%s is a run: flags and keys of hydra are for sweeps", dir)
			}
			return s.app.Resume(s.ctx, dir, keys...)
		},
	}
}
