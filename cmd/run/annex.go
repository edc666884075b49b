package main

import (
	"context"

	"fulcrum/experiments"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/usage"
	"fulcrum/reports/chart"
)

// annex holds the annexes, the parts that a build may leave out; annexes.go registers them. Its zero value is the core.
type annex struct {
	app   experiments.App
	verbs map[string]newVerb
	// report prints a report of several runs or, as JSON, the report of the one run in paths, which was written to path.
	report func(s *session, paths []string, path string, opt reportOptions) error
	// figures are those for a paper of a sweep or of several runs.
	figures func(paths []string, paper chart.Paper) ([]*chart.Figure, error)
	// queueTask runs a job of a sweep for a cluster's queue.
	queueTask func(ctx context.Context, args []string) error
	// goOn goes on with what a sweep folder asks, once its jobs have ended; it leaves alone a sweep that asks nothing.
	goOn func(ctx context.Context, runs sweep.Runs, dir string) error
}

// goOn goes on with what a sweep folder whose jobs have ended asks, if anything.
func (s *session) goOn(dir string) error {
	if s.annex.goOn == nil {
		return nil
	}
	return s.annex.goOn(s.ctx, s.app, dir)
}

// The annexes that bring commands, as internal/arrows/annexes.txt calls them.
const (
	judging  = "what judges and compares finished runs"
	watching = "board, watch and curves"
	studying = "reports of sweeps and studies"
)

// annexVerbs names the annex of each command that the program may lack.
func annexVerbs() map[string]string {
	return map[string]string{"ask": studying, "board": watching, "watch": watching, "diff": judging, "export": judging, "ls": judging,
		"verify": judging, "prove": judging, "open-test": judging, "lever-plus": "the Python reference"}
}

// lacks reports whether a command belongs to an annex that is not built in.
func (s *session) lacks(name string) bool { return annexVerbs()[name] != "" && !s.isVerb(name) }

// notBuiltIn is the error for a command or key of an annex that is not built in.
func notBuiltIn(what, annex string) error {
	return usage.Errorf("%s: this program is built without the annex %q (-tags core)", what, annex)
}
