// Package tracker is what the program and its trackers of experiments (MLflow, W&B) know of each other. A tracker is one package with an
// Open, and one line in the table that experiments.App has.
package tracker

import (
	"maps"
	"strings"

	"fulcrum/internal/secret"
	"fulcrum/reports/record"
)

// Run is what a tracker is told when a training run starts or goes on.
type Run struct {
	Dir      string // run folder, absolute
	Name     string
	Sweep    string // folder of the sweep that the run is a job of; "": it is none
	Job      int    // its number there
	Resumed  bool
	Command  string
	Hash     string            // of the configuration
	Versions map[string]string // of the program and of what it is built with
	Logging  record.LoggingOptions
	Say      func(level record.Level, text string) // a warning or a line for the log; from any goroutine
}

// End is how a run ended: a State of a summary, and what was best, nil for nothing.
type End struct {
	State string
	Best  *record.BestSummary
}

// Sink takes the rows of one run. Close sends what is left and how the run ended; its error is a warning.
type Sink interface {
	record.Mirror
	Close(End) error
}

// Open returns the sink of a run, nil where the run does not ask for one. An error is a warning: the run goes on without it.
type Open func(Run) (Sink, error)

// Params returns the settings of the run: dotted key → value as YAML. Headers of HTTP requests and secrets of
// addresses, which runs of earlier versions may hold, are left out; interpolations stay as they are written.
func (r Run) Params() (map[string]string, error) {
	flat, err := record.Settings(r.Dir)
	maps.DeleteFunc(flat, func(key, _ string) bool { return strings.Contains(key, ".headers.") })
	for key, value := range flat {
		flat[key] = secret.Mask(value)
	}
	return flat, err
}
