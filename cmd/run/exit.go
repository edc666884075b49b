package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/stdout"
)

// interrupted is the cause with which a signal cancels a run.
type interrupted struct{ signal syscall.Signal }

func (e *interrupted) Error() string { return "interrupted by " + unix.SignalName(e.signal) }

// Unwrap: it is no failure, of which a process of several would tell the others.
func (e *interrupted) Unwrap() error { return context.Canceled }

// exitCode maps kinds of errors to exit codes: 0 done, 1 failed, 2 usage or configuration,
// 129/130/143 interrupted (by SIGHUP, SIGINT, SIGTERM) with the state saved.
func exitCode(ctx context.Context, err error) int {
	var (
		stop  *interrupted
		one   *configs.Error
		many  configs.Errors
		coded interface{ ExitCode() int }
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &stop), errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &stop):
		return 128 + int(stop.signal)
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.As(err, &one), errors.As(err, &many):
		return 2
	}
	return 1
}

// lastWords bounds the time of the last message: a pipe without a reader must not keep the process.
const lastWords = 2 * time.Second

// exiting is locked by the caller that ends the process: a signal and the end of the work may come together.
var exiting sync.Mutex

// exit ends the process; nothing else does.
func exit(ctx context.Context, err error) {
	exiting.Lock()
	if err == nil {
		err = stdout.Err() // the work is done, its result was lost
	}
	if err != nil {
		message := err.Error()
		if stop, ok := errors.AsType[*interrupted](context.Cause(ctx)); ok {
			message = strings.ReplaceAll(message, context.Canceled.Error(), stop.Error())
		}
		said := make(chan struct{})
		go func() {
			defer close(said)
			if message = "run: " + message; os.Getenv(launcher.SupervisedEnv) == "" {
				stdout.Message(stdout.Errors(), message)
			} else {
				fmt.Fprintln(stdout.Errors(), message) // of a job: a log, read later and elsewhere
			}
		}()
		select {
		case <-said:
		case <-time.After(lastWords):
		}
	}
	interrupt.Clean()
	os.Exit(exitCode(ctx, err))
}
