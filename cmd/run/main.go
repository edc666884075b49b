// Command run trains, evaluates and applies selection policies. Its command line is Hydra's:
//
//	run exp=okvqa_v3 rce.epochs=2        one run
//	run -m exp=okvqa_v3 seed=0,1,2       a sweep
//	run exp=okvqa_v3 --cfg job           the composed config, nothing runs
//
// This file parses, composes and dispatches; what runs lives in package experiments.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/build"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == launcher.TaskVerb { // a queue's, for no user: it minds signals itself
		ctx := context.Background()
		exit(ctx, newApp().Verb(ctx, launcher.TaskVerb, os.Args[2:]))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(signals, syscall.SIGHUP) // the terminal was closed
	}
	signal.Ignore(syscall.SIGXFSZ) // a write past `ulimit -f` is an error like a full disk, not a crash
	go stopOn(ctx, signals, cancel)
	exit(ctx, realMain(ctx, os.Args[1:], stdout.Writer(), os.Stderr, newApp()))
}

// stopOn ends ctx at the first signal, so that the run saves its state, and the process at a second
// one. What comes right after the first is the same request again: a terminal and a sweep, or
// timeout(1), both pass it on.
func stopOn(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	const same = 300 * time.Millisecond
	stop := &interrupted{(<-signals).(syscall.Signal)}
	cancel(stop)
	begin, doublets := time.Now(), 0
	for s := range signals {
		if os.Getenv(launcher.SupervisedEnv) != "" {
			continue // a queue's signals may come twice, and it has one that ends every process
		}
		if doublets++; doublets > 1 || time.Since(begin) > same {
			exit(ctx, fmt.Errorf("%w; ended at once: the state is that of the last save", &interrupted{s.(syscall.Signal)}))
		}
	}
}

// realMain is main without the process: tests call it.
func realMain(ctx context.Context, args []string, stdout, stderr io.Writer, app App) error {
	s := &session{ctx: ctx, out: stdout, errOut: stderr, app: app, now: time.Now()}
	if len(args) > 0 && isVerb(args[0]) {
		return s.verb(args[0], args[1:])
	}
	inv, err := parseArgs(args)
	if err != nil {
		return s.withoutDashes(err, args)
	}
	if len(inv.args) > 0 && isVerb(inv.args[0]) { // flags before the verb
		if inv.args[0] == "explain" {
			inv.args = inv.args[1:]
			return s.explain(inv)
		}
		rest := args[indexOf(args, inv.args[0])+1:]
		if inv.help && !contains(rest, "--help") {
			rest = append([]string{"--help"}, rest...)
		}
		return s.verb(inv.args[0], rest)
	}
	return s.dispatch(inv)
}

func indexOf(list []string, s string) int {
	for i, x := range list {
		if x == s {
			return i
		}
	}
	return -1
}

// verbs are the commands beside overrides.
var verbs = [...]string{"attach", "bench", "checkpoint", "data", "diff", "doctor", "explain", "lever-plus", "report", "resume", "selftest", "status", "verify"}

func isVerb(s string) bool { return contains(verbs[:], s) }

// session is one call of the program.
type session struct {
	ctx    context.Context
	out    io.Writer
	errOut io.Writer
	app    App
	now    time.Time
}

func (s *session) verb(name string, args []string) error {
	if name == "explain" {
		inv, err := parseArgs(args)
		if err != nil {
			return err
		}
		return s.explain(inv)
	}
	return s.app.Verb(s.ctx, name, args)
}

// request is what the command line asks to compose. A tree of the user's own is composed as Hydra
// does, without our schema, unless a task is going to run it.
func (s *session) request(inv *invocation, runs bool) (configs.Request, error) {
	req := configs.Request{
		ConfigPath: inv.configPath, ConfigName: inv.configName, ConfigDir: inv.configDir,
		Overrides: inv.args, Multirun: inv.multirun, Now: s.now, AppName: "run",
		Warn: func(msg string) { fmt.Fprintln(s.errOut, "warning: "+msg) },
	}
	if inv.configPath == "" {
		req.Library = configs.Library()
	}
	if inv.configPath == "" || runs {
		schema, err := s.app.Schema()
		if err != nil {
			return req, err
		}
		req.Schema = schema
	}
	return req, overrides(req)
}

func (s *session) dispatch(inv *invocation) error {
	switch {
	case inv.version:
		fmt.Fprintln(s.out, "run "+build.Version)
		return nil
	case inv.completion:
		return s.completion(inv)
	case inv.cfg == "sweep" && !inv.help && !inv.hydraHelp:
		return s.printSweep(inv)
	case inv.cfg != "" || inv.info != "" || inv.help || inv.hydraHelp:
		return s.print(inv)
	}
	if inv.rerun != "" {
		return s.app.Verb(s.ctx, "rerun", append([]string{inv.rerun}, inv.args...))
	}
	return s.run(inv)
}

// run composes and hands over to the application.
func (s *session) run(inv *invocation) error {
	req, err := s.request(inv, true)
	if err != nil {
		return err
	}
	if !req.Multirun {
		if inv.detach {
			return usage.Errorf("%s", "--detach leaves a sweep to a process of its own: add --multirun")
		}
		c, err := configs.Compose(req)
		if err == nil && c.Mode() != "MULTIRUN" {
			return s.app.Run(s.ctx, c)
		}
		req.Multirun = true // hydra.mode=MULTIRUN in the config makes a plain call sweep
		if err != nil {
			if m, merr := configs.Compose(req); merr != nil || m.Mode() != "MULTIRUN" {
				return err
			}
		}
	}
	return s.app.Sweep(s.ctx, req, inv.detach)
}

func (s *session) printSweep(inv *invocation) error {
	req, err := s.request(inv, false)
	if err != nil {
		return err
	}
	text, err := s.app.Jobs(req)
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.out, text)
	return err
}

func (s *session) print(inv *invocation) error {
	req, err := s.request(inv, false)
	if err != nil {
		return err
	}
	c, err := configs.Compose(req)
	if err != nil {
		return err
	}
	var text string
	switch { // as in Hydra, help comes first
	case inv.hydraHelp:
		text, err = c.HydraHelp(flagsHelp())
	case inv.help:
		text, err = c.Help(flagsHelp(), inv.resolve)
	case inv.cfg != "":
		text, err = c.YAML(inv.cfg, inv.resolve, inv.pkg)
	default:
		text, err = c.Info(inv.info)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.out, text)
	return err
}
