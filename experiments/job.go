package experiments

import (
	"io"
	"strings"

	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/record"
)

// job is one run's work: what is asked for and where it is written. A task fills in what comes of it.
type job struct {
	cfg       *Config
	overrides []string // of the command line
	dir       string   // the run folder
	hash      string   // of the configuration
	device    string   // "" until libtorch is there
	log       *record.Log
	saved     *phases.Saved // the state a resume starts from; nil: none
	recorder  func(of func(query int64) asked) phases.Recorder
	judge     func(epochs int) (judgeFunc, error)
	begun     bool   // the first row, or answer, may be written from now on
	fresh     string // what of the policy starts fresh although there is a checkpoint; "" = nothing
	outcome
	closers []io.Closer // at the end of the task
}

// outcome is what a task leaves for summary.json.
type outcome struct {
	data       record.DataSummary
	result     *phases.Result   // of task=train
	evaluation evaluated        // of task=evaluate
	found      []record.Finding // of this attempt, that depend on the machine: they stand in no row
}

// judgeFunc says after an epoch why the run should end here; "": it goes on.
type judgeFunc = func(epoch int, m phases.Metrics, best string, minimize bool) (string, error)

// asked is what a query asks, for readers of completions.jsonl.
type asked struct {
	question, reference string
	answers             []string
}

// evaluated is what task=evaluate leaves in summary.json.
type evaluated interface {
	Best() *record.BestSummary // what a sweep compares
}

// logf writes a line to the log.
func (j *job) logf(format string, args ...any) { j.log.Infof(format, args...) }

// threads resolves threads=0. The products of small models are small: a second OpenBLAS thread gains a little on
// an idle machine, and on a busy one its spinning costs ten times what it gains.
func (j *job) threads() int { return max(j.cfg.Threads, 1) }

// overridden reports whether a key was set on the command line, the variant of a selector also by its
// group (selector=v3).
func (j *job) overridden(key string) bool {
	if key == "selector.variant" && j.overridden("selector") {
		return true
	}
	for _, o := range j.overrides {
		if name, _, ok := strings.Cut(strings.TrimLeft(o, "+"), "="); ok && name == key {
			return true
		}
	}
	return false
}

// atEnd closes c when the task has ended.
func (j *job) atEnd(c io.Closer) { j.closers = append(j.closers, c) }

// close releases what the task keeps open until its end: the processes of external scorers.
func (j *job) close() {
	for _, c := range j.closers {
		if err := c.Close(); err != nil {
			j.log.Warnf("%v", err)
		}
	}
	j.closers = nil
}

// mapTorch reads the data while libtorch is being mapped, then makes the run's device ready.
func (j *job) mapTorch(read func() error) error {
	loaded := make(chan error, 1)
	go func() { loaded <- torchx.Load() }()
	if err := read(); err != nil {
		return err // at once: what is wrong with the data needs no tensor
	}
	if err := <-loaded; err != nil {
		return err
	}
	torchx.Attach(j.threads())
	torchx.SetDeterministic(j.cfg.Deterministic)
	device, err := torchx.Device(j.cfg.Device)
	if err != nil {
		return usage.Errorf("%v", err)
	}
	j.device = device
	return nil
}
