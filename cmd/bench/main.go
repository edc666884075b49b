// Command bench measures training steps and holds losses against PyTorch's:
//
//	bench workloads rl_k64_b32 --phases rce      speed of one workload, one phase
//	bench losses --device cpu                    a few training steps against PyTorch's losses in float64
//
// It runs nothing that a user trains: that is cmd/run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"fulcrum/experiments/measure"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/registry"
	"fulcrum/internal/stdout"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// verb is what bench is told to do; bench VERB --help prints its usage.
type verb struct {
	usage string
	flags *pflag.FlagSet
	run   func(ctx context.Context, args []string) error
}

// verbs returns the commands, and the measuring processes that bench starts of itself.
func verbs() *registry.Table[func() verb] {
	t := registry.New[func() verb]("command")
	t.Add("workloads", workloads)
	t.Add("losses", losses)
	t.Add("measure", process(measure.Print))
	t.Add("measure-shape", process(measure.PrintShape))
	return t
}

// interrupted is the cause with which a signal ends bench.
type interrupted struct{ signal syscall.Signal }

func (e *interrupted) Error() string { return "interrupted by " + unix.SignalName(e.signal) }

// ExitCode returns 128 and the signal's number, as a shell's.
func (e *interrupted) ExitCode() int { return 128 + int(e.signal) }

func main() {
	torchx.CatchFaults(tensorfile.Records())
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { // what was measured is printed after the first; timeout(1) sends that twice
		stop := &interrupted{(<-signals).(syscall.Signal)}
		if err := interrupt.End(stop); err != nil {
			exit(err)
		}
		cancel(stop)
		for begin := time.Now(); time.Since(begin) < time.Second; {
			<-signals
		}
		exit(stop)
	}()
	exit(call(ctx, os.Args[1:]))
}

// call does what the arguments ask for.
func call(ctx context.Context, args []string) error {
	const overview = "bench workloads --help    training speed\nbench losses --help       training steps against PyTorch's losses\n"
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
		_, err := fmt.Fprint(stdout.Writer(), overview)
		return err
	}
	open, err := verbs().Get(args[0])
	if err != nil {
		return usage.Errorf("%v", err)
	}
	v := open()
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		_, err := fmt.Fprintf(stdout.Writer(), "%s\n%s", v.usage, v.flags.FlagUsages())
		return err
	}
	if err := v.flags.Parse(args[1:]); err != nil {
		return usage.OfFlags("bench "+args[0], v.flags, err)
	}
	return v.run(ctx, v.flags.Args())
}

// exit ends the process, the only place that does: 0 done, 1 failed, 2 a mistake in what was asked for, 130 or 143 interrupted.
func exit(err error) {
	if err == nil {
		err = stdout.Err() // the work is done, its result was lost
	}
	code := 0
	if err != nil {
		var coded interface{ ExitCode() int }
		if code = 1; errors.As(err, &coded) {
			code = coded.ExitCode()
		}
		stdout.Message(stdout.Errors(), "bench: "+strings.TrimPrefix(err.Error(), "bench: "))
	}
	interrupt.Clean()
	os.Exit(code)
}
