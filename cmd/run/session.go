package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/build"
	"fulcrum/internal/registry"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// app runs a composed configuration: experiments.App, or a test's app.
type app interface {
	sweep.Runs
	// RefuseIdle refuses keys that the user has set and that act nowhere in a run.
	RefuseIdle(c *configs.Composed) error
	// Run does one job.
	Run(ctx context.Context, c *configs.Composed) error
	// Resume goes on with the run of a folder.
	Resume(ctx context.Context, dir string, overrides ...string) error
	// Rerun repeats the configuration of a run folder with further overrides.
	Rerun(ctx context.Context, dir string, overrides []string) error
	// Sweep runs the jobs of a multirun; detached: in a background process.
	Sweep(ctx context.Context, req configs.Request, detached bool) error
	// Jobs lists the jobs of a multirun as YAML without running them.
	Jobs(req configs.Request) (string, error)
}

// session is one call of the program.
type session struct {
	ctx    context.Context
	out    io.Writer
	errOut io.Writer
	app    app
	verbs  *registry.Table[newVerb]
	annex  annex
	now    time.Time
}

// call follows the arguments: it does a verb, a run or a sweep, or prints something.
func (s *session) call(args []string) error {
	switch {
	case len(args) == 0:
		return s.write(s.overview(), nil)
	case args[0] == helpName:
		return s.helpOf(args[1:])
	case s.isVerb(args[0]):
		return s.verb(args[0], args[1:])
	case s.lacks(args[0]):
		return notBuiltIn(args[0], annexVerbs()[args[0]])
	case args[0] == "bench" || args[0] == "selftest":
		return usage.Errorf("%s is no command of this program: `make build` leaves bin/bench beside it, with "+
			"`bin/bench workloads` for speed and `bin/bench losses` for losses against PyTorch's", args[0])
	}
	inv, err := parseArgs(args)
	if err != nil {
		return s.withoutDashes(err, args)
	}
	if len(inv.args) > 0 && s.isVerb(inv.args[0]) {
		return s.verbBehindFlags(inv, args)
	}
	switch {
	case inv.rerun != "" && (inv.cfg != "" || inv.info != ""):
		return usage.Errorf("--rerun does one run again: want no --cfg or --info with it; the configuration that it takes is %s",
			filepath.Join(inv.rerun, ".hydra", "config.yaml"))
	case inv.version:
		fmt.Fprintln(s.out, "run "+build.Version)
		return nil
	case inv.completion:
		return s.completion(inv)
	case inv.cfg == "sweep" && !inv.help && !inv.hydraHelp:
		return s.shown(inv, func(req configs.Request) error {
			text, err := s.app.Jobs(req)
			return s.write(text, err)
		})
	case inv.cfg != "" || inv.info != "" || inv.help || inv.hydraHelp:
		return s.print(inv)
	case inv.rerun != "" && (inv.detach || inv.multirun):
		return usage.Errorf("--rerun does one run again: want no --multirun or --detach with it")
	case inv.rerun != "":
		return s.app.Rerun(s.ctx, inv.rerun, inv.args)
	}
	return s.run(inv)
}

// verbBehindFlags does a verb after flags of a run: explain takes them too, and every verb takes --help.
func (s *session) verbBehindFlags(inv *invocation, args []string) error {
	name := inv.args[0]
	at := slices.Index(args, name)
	rest := args[at+1:]
	if name == explainName {
		rest = slices.Concat(args[:at], rest)
	} else if inv.help && !slices.Contains(rest, "--help") {
		rest = slices.Concat([]string{"--help"}, rest)
	}
	return s.verb(name, rest)
}

// request turns the command line into a request to compose.
func (s *session) request(inv *invocation) (configs.Request, error) {
	req := configs.Request{
		ConfigPath: inv.configPath, ConfigName: inv.configName, ConfigDir: inv.configDir,
		Overrides: inv.args, Multirun: inv.multirun, Now: s.now, AppName: "run",
		Warn: func(msg string) { stdout.Message(s.errOut, "warning: "+msg) },
	}
	if inv.configPath == "" {
		req.Library = configs.Library()
	}
	schema, err := s.app.Schema()
	if err != nil {
		return req, err
	}
	req.Schema = schema
	return req, s.overrides(req)
}

// shown does what prints a configuration with the request of the run that it is of. A tree that no run takes, since its files have
// keys of another program, is composed as Hydra does, without types and defaults of ours.
func (s *session) shown(inv *invocation, do func(configs.Request) error) error {
	req, err := s.request(inv)
	if err != nil {
		return err
	}
	err = do(req)
	if at := configs.Foreign(err); at != nil && inv.configPath != "" && req.Schema != nil {
		req.Schema, req.Warn = nil, nil
		if err = do(req); err == nil {
			stdout.Message(s.errOut, "warning: a run refuses this configuration, which is shown as Hydra composes it: "+at.Error())
		}
	}
	return err
}

// run composes and hands over to the application.
func (s *session) run(inv *invocation) error {
	req, err := s.request(inv)
	if err != nil {
		return err
	}
	if !req.Multirun {
		if inv.detach {
			return usage.Errorf("--detach leaves a sweep to a process of its own: add --multirun")
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

// print composes, and prints the text that a flag names; as in Hydra, help comes first.
func (s *session) print(inv *invocation) error {
	debug.SetGCPercent(800) // the process ends after printing: one collection costs a fifth of its time
	return s.shown(inv, func(req configs.Request) error {
		c, err := configs.Compose(req)
		if err != nil {
			return err
		}
		return s.printed(inv, c)
	})
}

// printed prints what a flag asks of a configuration.
func (s *session) printed(inv *invocation, c *configs.Composed) (err error) {
	var text string
	switch {
	case inv.hydraHelp:
		text, err = c.HydraHelp(flagsHelp())
	case inv.help && inv.configPath == "" && !slices.ContainsFunc(inv.args, ofHelp):
		text, err = s.help(c)
	case inv.help:
		text, err = c.Help(flagsHelp(), inv.resolve)
	case inv.cfg != "":
		if !inv.multirun {
			err = s.app.RefuseIdle(c)
		}
		if err == nil {
			text, err = c.YAML(inv.cfg, inv.resolve, inv.pkg)
		}
	default:
		text, err = c.Info(inv.info)
	}
	if err == nil && inv.cfg != "" { // YAML, quoted where necessary, with Hydra's meaning
		if note := c.UnreadNote(c.Unread()); note != "" {
			stdout.Message(s.errOut, "warning: "+note)
		}
		_, err = io.WriteString(s.data(), text)
		return err
	}
	return s.write(text, err)
}

// data takes results for other programs, unchanged.
func (s *session) data() io.Writer {
	if stream, ok := s.out.(*stdout.Stream); ok {
		return stream.Data()
	}
	return s.out
}

// ofHelp reports whether an override sets Hydra's own help: then that is printed.
func ofHelp(override string) bool {
	override = strings.TrimLeft(override, "+~")
	return strings.HasPrefix(override, "hydra.help") || strings.HasPrefix(override, "hydra/help")
}

// write prints a text that was made without error.
func (s *session) write(text string, err error) error {
	if err == nil {
		_, err = io.WriteString(s.out, text)
	}
	return err
}
