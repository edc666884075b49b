package experiments

import (
	"context"
	"strconv"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/launcher"
	"fulcrum/experiments/ledger"
	"fulcrum/internal/registry"
)

// App runs composed configurations and the verbs for package main.
type App struct{}

// Schema is the type of every configuration of ours.
func (App) Schema() (*configs.Schema, error) { return configs.SchemaOf(DefaultConfig()) }

// Verb runs a command that is not a run.
func (a App) Verb(ctx context.Context, name string, args []string) error {
	verb, err := Verbs().Get(name)
	if err != nil {
		return &UsageError{err.Error()}
	}
	return verb(ctx, a, args)
}

type verbFunc func(ctx context.Context, a App, args []string) error

// Verbs returns the commands beside overrides.
func Verbs() *registry.Table[verbFunc] {
	t := registry.New[verbFunc]("command")
	t.Add("resume", verbResume)
	t.Add("rerun", verbRerun)
	t.Add("status", verbStatus)
	t.Add(launcher.TaskVerb, verbSweepJob)
	t.Add("attach", verbAttach)

	t.Add("report", verbReport)
	t.Add("checkpoint", verbCheckpoint)
	t.Add("data", verbData)
	t.Add("doctor", verbDoctor)
	t.Add("lever-plus", verbLeverPlus)
	t.Add("bench", verbBench)
	t.Add("selftest", verbSelftest)
	return t
}

// want checks the number of a verb's arguments.
func want(args []string, n int, usage string) error {
	if len(args) != n {
		return usagef("want: run %s", usage)
	}
	return nil
}

func verbResume(ctx context.Context, a App, args []string) error {
	r := resumption{retry: true}
	var dirs []string
	for _, arg := range args {
		switch {
		case arg == acceptChanges:
			r.accept = true
		case arg == detachFlag:
			r.detached = true
		case strings.HasPrefix(strings.TrimLeft(arg, "+~"), "hydra") && strings.Contains(arg, "="):
			r.overrides = append(r.overrides, arg)
		default:
			dirs = append(dirs, arg)
		}
	}
	if err := want(dirs, 1, "resume RUN_FOLDER, or run resume SWEEP_FOLDER ["+acceptChanges+"] ["+detachFlag+"] [hydra.sweeper.n_trials=…]"); err != nil {
		return err
	}
	if ledger.Exists(dirs[0]) {
		return resumeSweep(ctx, dirs[0], r)
	}
	if err := lostLedger(dirs[0]); err != nil {
		return err
	}
	if len(args) > 1 {
		return usagef("%s: flags and overrides are for sweeps; there is none", dirs[0])
	}
	return a.Resume(ctx, dirs[0])
}

// detachFlag leaves a sweep to a process of its own.
const detachFlag = "--detach"

// acceptChanges lets a sweep go on although its configuration files have changed.
const acceptChanges = "--accept-changes"

// verbSweepJob is what a batch script of Slurm's ends in.
func verbSweepJob(ctx context.Context, _ App, args []string) error {
	if err := want(args, 2, launcher.TaskVerb+" SWEEP_FOLDER JOB_NUMBER"); err != nil {
		return err
	}
	num, err := strconv.Atoi(args[1])
	if err != nil {
		return usagef("%s %s: want the number of a job", launcher.TaskVerb, args[1])
	}
	return launcher.RunTask(ctx, args[0], num)
}

func verbStatus(_ context.Context, _ App, args []string) error {
	if err := want(args, 1, "status SWEEP_OR_RUN_FOLDER"); err != nil {
		return err
	}
	return status(args[0])
}

func verbRerun(ctx context.Context, a App, args []string) error {
	if len(args) == 0 {
		return usagef("want: run --rerun RUN_FOLDER [overrides]")
	}
	return a.Rerun(ctx, args[0], args[1:])
}
