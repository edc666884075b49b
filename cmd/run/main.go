// Command run trains, evaluates and applies selection policies. Its command line is Hydra's:
//
//	run exp=okvqa_v3 rce.epochs=2        one run
//	run -m exp=okvqa_v3 seed=0,1,2       a sweep
//	run exp=okvqa_v3 --cfg job           the composed config, nothing runs
//	run report outputs/DATE/TIME         a command
//
// session.go dispatches a command line; a command is one file, verb_NAME.go, and one line of the table in verb.go.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/ranks"
	"fulcrum/internal/stdout"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
)

func main() {
	torchx.CatchFaults(tensorfile.Records())
	with := annexes()
	if len(os.Args) > 1 && os.Args[1] == launcher.TaskVerb { // called by a queue, not by users: it handles signals itself
		ctx := context.Background()
		if with.queueTask == nil {
			exit(ctx, notBuiltIn(launcher.TaskVerb, "Slurm"))
		}
		exit(ctx, with.queueTask(ctx, os.Args[2:]))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(signals, syscall.SIGHUP) // the terminal was closed
	}
	if os.Getenv(launcher.SupervisedEnv) != "" {
		signal.Notify(signals, syscall.SIGUSR1) // a supervisor's SIGTERM, by way of srun
	}
	signal.Ignore(syscall.SIGXFSZ) // a write past `ulimit -f` is an error like a full disk, not a crash
	go stopOn(ctx, signals, cancel)
	s := &session{ctx: ctx, out: stdout.Writer(), errOut: stdout.Errors(), verbs: verbs(with.verbs), annex: with, now: time.Now(),
		app: with.app}
	err := cmp.Or(s.call(os.Args[1:]), tensorfile.Changed())
	ranks.Tell(err)
	exit(ctx, err)
}

// stopOn ends the process at the first signal, unless there is state to save: then the first signal ends ctx, so that the state is
// saved, and a second one ends the process. A signal right after the first is the same request: a terminal and a sweep, or timeout(1),
// both pass it on.
func stopOn(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	const same = 300 * time.Millisecond
	stop := &interrupted{(<-signals).(syscall.Signal)}
	if stop.signal == syscall.SIGUSR1 {
		stop.signal = syscall.SIGTERM
	}
	go func() { // saving may be slow, and the second signal must be heard
		if err := interrupt.End(stop); err != nil {
			ended, end := context.WithCancelCause(ctx) // not ctx: the work goes on to the last moment, in silence
			end(stop)
			if columns, _ := stdout.Errors().Size(); columns > 0 {
				fmt.Fprintln(stdout.Errors()) // ends the line with the terminal's ^C
			}
			exit(ended, err)
		}
		cancel(stop)
		if os.Getenv(launcher.SupervisedEnv) == "" { // a person waits for a sign
			fmt.Fprintf(stdout.Errors(), "\n%v: saving the state; a second one ends at once\n", stop)
		}
	}()
	begin, doublets := time.Now(), 0
	for s := range signals {
		if os.Getenv(launcher.SupervisedEnv) != "" {
			continue // a queue's signals may come twice; SIGKILL is its last one
		}
		if doublets++; doublets > 1 || time.Since(begin) > same {
			fmt.Fprintln(stdout.Errors()) // ends the line with the terminal's ^C
			exit(ctx, fmt.Errorf("%w; ended at once: the state is that of the last save", &interrupted{s.(syscall.Signal)}))
		}
	}
}
