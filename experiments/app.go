package experiments

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/registry"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// App runs composed configurations and the verbs for package main.
type App struct{}

// Schema returns the type of every configuration of ours.
func (App) Schema() (*configs.Schema, error) { return job.Schema() }

// Check refuses a configuration from which no run could start.
func (App) Check(c *configs.Composed) error {
	_, err := job.Decode(c)
	return err
}

// Verb runs a command that is not a run.
func (a App) Verb(ctx context.Context, name string, args []string) error {
	verb, err := Verbs().Get(name)
	if err != nil {
		return usage.Errorf("%v", err)
	}
	if text := Usage(name); text != "" && slices.ContainsFunc(args, func(s string) bool { return s == "--help" || s == "-h" }) {
		stdout.Print(text)
		return nil
	}
	if err := onlyFlags(name, args); err != nil {
		return err
	}
	return verb(ctx, a, args)
}

// onlyFlags refuses a flag that a command does not know. Those that read flags with a library say so themselves.
func onlyFlags(verb string, args []string) error {
	known := map[string][]string{
		"resume": {sweep.AcceptChanges, detachFlag}, "status": nil, "attach": nil, "report": {htmlFlag}, "verify": {skipWeights}, "diff": {jsonFlag}, "data": nil, "doctor": nil,
	}
	flags, listed := known[verb]
	if !listed {
		return nil
	}
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "--") || slices.Contains(flags, name) {
			continue
		}
		hint := "it has none"
		if len(flags) > 0 {
			hint = "want " + strings.Join(flags, ", ")
		}
		if near, ok := registry.Nearest(name, flags); ok {
			hint = "did you mean " + near + "?"
		}
		return usage.Errorf("run %s: unknown flag %s (%s); run %s --help says what it takes", verb, name, hint, verb)
	}
	return nil
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
	t.Add("diff", verbDiff)
	t.Add("checkpoint", verbCheckpoint)
	t.Add("data", verbData)
	t.Add("doctor", verbDoctor)
	t.Add("lever-plus", verbLeverPlus)
	t.Add("bench", verbBench)
	t.Add("selftest", verbSelftest)
	t.Add("verify", verbVerify)
	return t
}

// Usage is what a command of Verbs says to --help: its forms, one a line, and what they do. It is empty for a
// command that has flags, and a help, of its own.
func Usage(name string) string {
	switch name {
	case "resume":
		return `run resume RUN_FOLDER
run resume SWEEP_FOLDER [` + sweep.AcceptChanges + `] [` + detachFlag + `] [hydra.sweeper.n_trials=N] [hydra/launcher=NAME] …
Goes on with an interrupted run from its last state, or runs what is missing of a sweep and retries what has failed.
` + sweep.AcceptChanges + ` lets a sweep go on although its configuration files have changed, with this build of the program;
` + detachFlag + ` leaves it to a process of its own. How a sweep runs and is judged may be given anew,
what its jobs compute may not (docs/sweeps.md).
`
	case "rerun":
		return `run --rerun RUN_FOLDER [overrides]
Repeats a run's configuration in a new run folder.
`
	case "status":
		return `run status SWEEP_OR_RUN_FOLDER
Prints how far a run or each job of a sweep is, and whether a process is at work on it.
`
	case "attach":
		return `run attach SWEEP_FOLDER
Follows a sweep that another process controls until it ends; takes over one that nobody controls.
`
	case "report":
		return `run report RUN_OR_SWEEP_FOLDER
run report RUN_FOLDER RUN_FOLDER… [` + htmlFlag + ` FILE]
run report TABLE.json [` + htmlFlag + ` FILE]
Writes report.md and report.html of a run or sweep again, prints a comparison of several runs, or says what a table
of published accuracies allows to conclude (docs/statistics.md); ` + htmlFlag + ` writes what is printed as a page too.
`
	case "verify":
		return `run verify REPORT_OR_FOLDER [` + skipWeights + `]
Computes every number of a run's or sweep's report again from its raw records, draws its plots again, and compares:
one line for each difference, exit 1 if there is any. ` + skipWeights + ` accepts a folder whose weights are gone.
`
	case "diff":
		return `run diff A B [` + jsonFlag + `]
Names the settings, data and code versions that differ between two run folders, two sweep folders or two config
files. Paths, logging and the hydra node, which change no result, stand apart and do not count. Exit code 0: nothing
that counts differs; 1: something does; 2: A or B is none of these.
`
	case "checkpoint":
		return `run checkpoint inspect|verify FILE_OR_RUN_FOLDER
run checkpoint export FILE_OR_RUN_FOLDER --format ` + strings.Join(exportFormats(), "|") + ` [--out PATH] [--force]
    [--base MODEL_FOLDER] [--dtype float32|bfloat16|float16]
Lists what a checkpoint holds, checks that it is whole and finite, or writes it in another layout.
`
	case "data":
		return `run data inspect PATH
Reports what a beam file, embedding table, reward table, or a file of conversations or texts holds, and the first
fault for which a run would refuse it (exit code 1).
`
	case "doctor":
		return `run doctor
Says what of libtorch, BLAS, CUDA and threads works here.
`
	}
	return ""
}

// want checks the number of a verb's arguments.
func want(args []string, n int, form string) error {
	if len(args) != n {
		return usage.Errorf("want: run %s", form)
	}
	return nil
}

func verbResume(ctx context.Context, a App, args []string) error {
	r := sweep.Resumption{Retry: true}
	var dirs []string
	for _, arg := range args {
		switch {
		case arg == sweep.AcceptChanges:
			r.Accept = true
		case arg == detachFlag:
			r.Detached = true
		case strings.HasPrefix(strings.TrimLeft(arg, "+~"), "hydra") && strings.Contains(arg, "="):
			r.Overrides = append(r.Overrides, arg)
		default:
			dirs = append(dirs, arg)
		}
	}
	if err := want(dirs, 1, "resume RUN_FOLDER, or run resume SWEEP_FOLDER ["+sweep.AcceptChanges+"] ["+detachFlag+"] [hydra.sweeper.n_trials=…]"); err != nil {
		return err
	}
	if err := runfolder.CheckExists(dirs[0]); err != nil {
		return err
	}
	if ledger.Exists(dirs[0]) {
		return sweep.Resume(ctx, a, dirs[0], r)
	}
	if err := sweep.LostLedger(dirs[0]); err != nil {
		return err
	}
	if len(args) > 1 {
		return usage.Errorf("%s: flags and overrides are for sweeps; there is none", dirs[0])
	}
	return a.Resume(ctx, dirs[0])
}

// detachFlag leaves a sweep to a process of its own.
const detachFlag = "--detach"

// verbSweepJob is what a batch script of Slurm's ends in.
func verbSweepJob(ctx context.Context, _ App, args []string) error {
	if err := want(args, 2, launcher.TaskVerb+" SWEEP_FOLDER JOB_NUMBER"); err != nil {
		return err
	}
	num, err := strconv.Atoi(args[1])
	if err != nil {
		return usage.Errorf("%s %s: want the number of a job", launcher.TaskVerb, args[1])
	}
	return launcher.RunTask(ctx, args[0], num)
}

func verbStatus(_ context.Context, _ App, args []string) error {
	if err := want(args, 1, "status SWEEP_OR_RUN_FOLDER"); err != nil {
		return err
	}
	if err := runfolder.CheckExists(args[0]); err != nil {
		return err
	}
	return sweep.PrintStatus(args[0])
}

func verbAttach(ctx context.Context, a App, args []string) error {
	if err := want(args, 1, "attach SWEEP_FOLDER"); err != nil {
		return err
	}
	return sweep.Attach(ctx, a, args[0])
}

func verbRerun(ctx context.Context, a App, args []string) error {
	if len(args) == 0 {
		return usage.Errorf("want: run --rerun RUN_FOLDER [overrides]")
	}
	return a.Rerun(ctx, args[0], args[1:])
}

// Sweep runs a multirun.
func (a App) Sweep(ctx context.Context, req configs.Request, detached bool) error {
	return sweep.Start(ctx, a, req, detached)
}

// Jobs lists the jobs of a multirun for --cfg sweep.
func (a App) Jobs(req configs.Request) (string, error) { return sweep.Jobs(a, req) }
