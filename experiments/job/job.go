package job

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"fulcrum/configs"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/ranks"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/reports/record"
)

// Job is one run's work: its configuration and its folder. The task fills in the outcome.
type Job struct {
	Config    *Config
	Overrides []string // of the command line
	Dir       string   // the run folder
	Sweep     string   // the folder of the sweep whose job the run is; "": of none
	Hash      string   // of the configuration
	Device    string   // "" until libtorch is there
	Log       *record.Log
	Saved     *phases.Saved // the state a resume starts from; nil: none
	Ranks     *ranks.Group  // the processes of the run; nil: one
	Local     int           // number of this process among those on its machine
	Held      func() error  // returns an error if the folder is no longer this run's; nil: not checked
	Redraw    func()        // draws the plots anew; nil: no plots
	Judge     func(epochs int) (JudgeFunc, error)
	// Compose composes a stage; nil: the run was resumed.
	Compose func(overrides []string) (*configs.Composed, error)
	Begun   bool // the first row, or answer, may be written from now on
	// Ranges are the least and the greatest score that a metric's formula can give, where the configuration decides it.
	Ranges map[string][2]float64
	Served []tensorfile.Input // the frozen model on a server that training asks, as if it were a file
	Fresh  string             // the part of the policy that starts fresh despite a checkpoint; "" = nothing
	// Baselines are the mean validation rewards of rules that learn nothing, by name.
	Baselines map[string]float64
	Outcome
	Holder   *interrupt.Holder                 // heeds the context from when the task ends by itself; nil: of no process
	closers  []io.Closer                       // at the end of the task
	vouched  []func(ctx context.Context) error // before the results of training count
	measured time.Time                         // when system.jsonl got its last line
}

// Outcome holds a task's results for summary.json.
type Outcome struct {
	Data       record.DataSummary
	Result     *phases.Result   // of task=train
	Evaluation evaluated        // of task=evaluate
	Found      []record.Finding // of this attempt, that depend on the machine: they stand in no row
}

// JudgeFunc returns after an epoch the reason to end the run; "": it goes on.
type JudgeFunc = func(epoch int, m phases.Metrics, best string, minimize bool) (string, error)

// evaluated is the result of task=evaluate in summary.json.
type evaluated interface {
	Best() *record.BestSummary // the number that a sweep compares
}

func (j *Job) Logf(format string, args ...any) { j.Log.Infof(format, args...) }

// OfMachine records a finding that depends on the machine: it goes to run.log and summary.json, not to metrics.jsonl.
func (j *Job) OfMachine(f doctor.Finding, phase string) {
	tell := j.Log.Warnf
	if f.Severity == doctor.Note {
		tell = j.Log.Infof
	}
	tell("%s", f.Message)
	j.Found = append(j.Found, record.Finding{Check: f.Check, Severity: string(f.Severity), Message: f.Message, Key: f.Key,
		Value: record.Number(f.Value), Limit: record.Number(f.Limit), Phase: phase, Step: f.Step})
}

// Threads resolves threads=0. The products of small models are small: a second thread gains a little on an idle machine, and its waking
// costs as much again.
func (j *Job) Threads() int { return max(j.Config.Threads, 1) }

// Overridden reports whether a key was set on the command line, the variant of a selector also by its
// group (selector=v3).
func (j *Job) Overridden(key string) bool {
	if key == "selector.variant" && j.Overridden("selector") {
		return true
	}
	return slices.ContainsFunc(j.Overrides, func(o string) bool {
		name, _, ok := strings.Cut(strings.TrimLeft(o, "+"), "=")
		return ok && name == key
	})
}

// BeforeResults has f called when training has ended, before its results count.
func (j *Job) BeforeResults(f func(ctx context.Context) error) { j.vouched = append(j.vouched, f) }

// Vouched calls the functions of BeforeResults: an error says that the results cannot be relied on.
func (j *Job) Vouched(ctx context.Context) error {
	for _, f := range j.vouched {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// AtEnd closes c when the task has ended.
func (j *Job) AtEnd(c io.Closer) { j.closers = append(j.closers, c) }

// Close releases what the task keeps open until its end: the processes of external scorers.
func (j *Job) Close() {
	for _, c := range j.closers {
		if err := c.Close(); err != nil {
			j.Log.Warnf("%v", err)
		}
	}
	j.closers = nil
}

// MapTorch reads the data while libtorch is being mapped, then makes the run's device ready.
func (j *Job) MapTorch(read func() error) error {
	loaded := make(chan error, 1)
	go func() { loaded <- torchx.Load() }()
	if err := read(); err != nil {
		return err // at once: a fault of the data needs no tensor
	}
	if err := <-loaded; err != nil {
		return err
	}
	torchx.Attach(j.Threads())
	torchx.SetDeterministic(j.Config.Deterministic)
	device, err := torchx.Device(j.Config.Device, j.Local)
	if err != nil {
		return usage.Errorf("%v", err)
	}
	j.Device = device
	return nil
}
