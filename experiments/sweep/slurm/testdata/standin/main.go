// Command standin stands in for the program in tests of launchers: its runs count to a number, a step in
// 50 ms, save what they have at SIGTERM and at every step, and leave the files that a supervisor looks at.
//
//	standin sweep-job SWEEP NUM     as the program's
//	standin STEPS KIND DIR …        a run in DIR; KIND: count, fail (at half), kill (itself, at half)
//	standin resume DIR              goes on with it
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/slurm"
)

func main() {
	err := work(os.Args[1:])
	var coded interface{ ExitCode() int }
	switch {
	case err == nil:
	case errors.As(err, &coded):
		fmt.Fprintln(os.Stderr, "run: "+err.Error())
		os.Exit(coded.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "run: "+err.Error())
		os.Exit(1)
	}
}

type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

func work(args []string) error {
	if args[0] == launcher.TaskVerb {
		return slurm.RunTask(context.Background(), args[1:])
	}
	stop := make(chan os.Signal, 9)
	signal.Notify(stop, syscall.SIGTERM)
	dir, saved := "", 0
	if args[0] == "resume" {
		dir = args[1]
		text, err := os.ReadFile(filepath.Join(dir, ".hydra/config.yaml"))
		if err != nil {
			return err
		}
		args = strings.Fields(string(text))
		text, err = os.ReadFile(filepath.Join(dir, "steps"))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		saved = len(text)
	} else {
		dir = args[2]
		if err := os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755); err != nil {
			return err
		}
		// Refuses a second start from scratch, as the program does.
		f, err := os.OpenFile(filepath.Join(dir, ".hydra/config.yaml"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		fmt.Fprintln(f, strings.Join(args, " "))
		f.Close()
	}
	steps, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(dir, "steps"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	for i := saved; i < steps; i++ {
		select {
		case <-stop:
			fmt.Println("saved at step", i)
			return exit(143)
		case <-time.After(50 * time.Millisecond):
		}
		if 2*i >= steps {
			switch args[1] {
			case "fail":
				return errors.New("boom")
			case "kill":
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		if _, err := out.WriteString("."); err != nil {
			return err
		}
	}
	fmt.Println("counted to", steps, "as", args[len(args)-1])
	return os.WriteFile(filepath.Join(dir, "summary.json"), []byte(`{"state":"done"}`), 0o644)
}
