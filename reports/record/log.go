package record

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/visible"
	"fulcrum/reports/stats"
)

const (
	MetricsFile = "metrics.jsonl"
	RunLogFile  = "run.log"
)

// LogOptions says where a run's log goes besides its folder, and whether the run is a resumed one.
type LogOptions struct {
	LoggingOptions
	Verbose  []string         // loggers, phases that is, whose steps are lines too; "": all
	Restored *Position        // the state that a resumed run starts from; nil for a new run
	Stderr   io.Writer        // progress and messages; nil: stdout.Errors
	Now      func() time.Time // nil: the time since the log was opened, added to that of its opening
}

// Log is the record of a run while it happens: metrics.jsonl, TensorBoard events, run.log and the
// progress on stderr. Its methods may be called from several goroutines.
type Log struct {
	mu      sync.Mutex
	dir     string
	opt     LogOptions
	order   MetricOrder
	metrics *os.File
	runLog  *os.File
	events  *EventWriter // nil: no TensorBoard
	mirrors []Mirror
	console *Progress
	// clusters are the groups of a split's queries by query id; nil: none are known.
	clusters map[string]map[int64]string
	rows     int // lines of metrics.jsonl, resume events not counted
	buf      []byte
	stall    stall
}

// OpenLog opens the log of the run folder dir, which must exist. With opt.Restored it first cuts off
// what lies behind the restored state and records the resume as one event.
func OpenLog(dir string, opt LogOptions) (*Log, error) {
	opt.Stderr = cmp.Or[io.Writer](opt.Stderr, stdout.Errors())
	if opt.Now == nil {
		opt.Now = steadyClock()
	}
	opt.LogEverySteps = max(opt.LogEverySteps, 1)
	if opt.Restored != nil {
		if err := removeEnd(dir); err != nil {
			return nil, err
		}
		if err := truncate(dir, *opt.Restored); err != nil {
			return nil, err
		}
	}
	l := &Log{dir: dir, opt: opt, order: NewMetricOrder(), console: newProgress(opt.Stderr, opt.Now)}
	if err := l.open(); err != nil {
		l.Close()
		return nil, err
	}
	if at := opt.Restored; at != nil {
		message := "resumed from the start"
		if at.GlobalStep > 0 {
			message = fmt.Sprintf("resumed after global step %d", at.GlobalStep)
		}
		severity := "note"
		if len(at.Passed) > 0 {
			severity = "warning"
			message += ", skipping damaged states: " + strings.Join(at.Passed, "; ")
		}
		fields := map[string]any{"event": eventResume, "severity": severity, "message": message}
		if err := l.Record(KindEvent, at.Phase, at.Epoch, at.Step, at.GlobalStep, fields); err != nil {
			l.Close()
			return nil, err
		}
	}
	l.watch(time.Duration(opt.StallMinutes * float64(time.Minute)))
	return l, nil
}

func (l *Log) open() (err error) {
	if l.rows, err = countRows(filepath.Join(l.dir, MetricsFile)); err != nil {
		return err
	}
	if l.metrics, err = appendTo(filepath.Join(l.dir, MetricsFile)); err != nil {
		return err
	}
	if l.runLog, err = appendTo(filepath.Join(l.dir, RunLogFile)); err != nil {
		return err
	}
	if l.opt.TensorBoard {
		restart := 0
		if l.opt.Restored != nil {
			restart = l.opt.Restored.GlobalStep + 1
		}
		l.events, err = newEventWriter(l.dir, l.opt.Now(), restart)
	}
	return err
}

func appendTo(path string) (*os.File, error) {
	f, err := regular.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", filepath.Base(path), err)
	}
	return f, nil
}

// Mirror takes every row of a run while it is written, as trackers of experiments do.
type Mirror interface {
	Row(r Row)
}

// Mirror copies the rows to come to m. The caller closes m.
func (l *Log) Mirror(m Mirror) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mirrors = append(l.mirrors, m)
}

// Plan tells the progress line how long the run's phases will be, in order.
func (l *Log) Plan(phases []PhasePlan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.console.Plan = slices.Clone(phases)
}

// Record writes one row. It fails when the disk does; nothing else about a row is an error but a field of a type that
// JSON rows do not have. A step that logging.log_every_steps leaves out is shown but not written.
func (l *Log) Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opt.Now()
	r := Row{Kind: kind, Phase: phase, Epoch: epoch, Step: step, GlobalStep: globalStep,
		Time: seconds(now), Fields: fields}
	l.moved(now, fmt.Sprintf("%s of %s, epoch %d, step %d", kind, cmp.Or(phase, "the run"), epoch, step))
	if kind != KindStep || step%l.opt.LogEverySteps == 0 {
		if err := l.write(r); err != nil {
			return err
		}
	}
	return l.show(now, r)
}

// write appends r to metrics.jsonl in one system call, and to the TensorBoard events.
func (l *Log) write(r Row) error {
	line, err := appendRow(l.buf[:0], r, l.order)
	if err != nil {
		return err
	}
	l.buf = line
	if _, err := l.metrics.Write(line); err != nil {
		return fmt.Errorf("cannot write %s: %w", MetricsFile, err)
	}
	if !isResumeLine(line) {
		l.rows++
	}
	for _, m := range l.mirrors {
		m.Row(r)
	}
	if l.events == nil {
		return nil
	}
	if payload := EventOf(r, l.order); payload != nil {
		return l.events.Write(payload)
	}
	return nil
}

// show puts r on the console and, where it is worth a line, in run.log.
func (l *Log) show(now time.Time, r Row) error {
	if r.Kind == KindStep && (slices.Contains(l.opt.Verbose, "") || slices.Contains(l.opt.Verbose, r.Phase)) {
		return l.say(now, r.Phase, LevelDebug, l.console.stepLine(r, ""))
	}
	if r.Kind == KindStep {
		if l.opt.Progress {
			l.console.step(r)
		}
		return nil
	}
	name, level, message := l.console.LogLine(r)
	return l.say(now, name, level, message)
}

// Infof writes a line to run.log and, unless logging.progress is off, to stderr.
func (l *Log) Infof(format string, args ...any) error { return l.sayf(LevelInfo, "", format, args) }

// Warnf writes a warning to run.log and stderr, whatever logging.progress says.
func (l *Log) Warnf(format string, args ...any) error {
	return l.sayf(LevelWarning, "warning: ", format, args)
}

// Errorf writes an error to run.log and stderr, whatever logging.progress says.
func (l *Log) Errorf(format string, args ...any) error {
	return l.sayf(LevelError, "error: ", format, args)
}

func (l *Log) sayf(level Level, prefix, format string, args []any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.say(l.opt.Now(), "run", level, prefix+fmt.Sprintf(format, args...))
}

// Note writes a line to run.log alone: what the caller says on stderr itself.
func (l *Log) Note(level Level, message string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.runLog.WriteString(runLogLine(l.opt.Now(), "run", level, message)); err != nil {
		return fmt.Errorf("cannot write %s: %w", RunLogFile, err)
	}
	return nil
}

func (l *Log) say(now time.Time, name string, level Level, message string) error {
	l.moved(now, fmt.Sprintf("%.60q", message))
	return l.tell(now, name, level, message)
}

// tell writes a message without a note of progress.
func (l *Log) tell(now time.Time, name string, level Level, message string) error {
	if l.opt.Progress || level != LevelInfo {
		l.console.print(message, level)
	}
	if _, err := l.runLog.WriteString(runLogLine(now, name, level, message)); err != nil {
		return fmt.Errorf("cannot write %s: %w", RunLogFile, err)
	}
	return nil
}

// ClusterBy says which queries of a split belong together, by query id: their scores are written with their clusters.
func (l *Log) ClusterBy(split string, of map[int64]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clusters == nil {
		l.clusters = map[string]map[int64]string{}
	}
	l.clusters[split] = of
}

// Scores appends the scores of every query under a policy to evals.jsonl, for paired comparisons.
func (l *Log) Scores(e Evaluation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.clusters[e.Split]; of != nil {
		e.Clusters = stats.NumberedClusters(e.QueryIDs, of)
	}
	return AppendEvals(l.dir, e)
}

// Completions appends sampled candidates of one step to completions.jsonl.
func (l *Log) Completions(phase string, epoch, step int, rows []Completion) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return appendCompletions(l.dir, phase, epoch, step, rows)
}

// Mark makes everything recorded so far durable and returns how many rows metrics.jsonl (resume events not counted) and
// how many lines evals.jsonl and completions.jsonl have: what a saved state keeps for an exact resume.
func (l *Log) Mark() (rows, evals, completions int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.sync(); err != nil {
		return 0, 0, 0, err
	}
	if evals, err = countRows(filepath.Join(l.dir, EvalsFile)); err != nil {
		return 0, 0, 0, err
	}
	completions, err = countRows(filepath.Join(l.dir, CompletionsFile))
	return l.rows, evals, completions, err
}

// Sync makes everything recorded so far durable, the names of the files included.
func (l *Log) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sync()
}

func (l *Log) sync() error {
	files := []*os.File{l.metrics, l.runLog} // the latter and the events repeat the rows, and are checked against them
	if l.events != nil {
		files = append(files, l.events.f)
	}
	for _, f := range files {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("cannot write %s: %w", filepath.Base(f.Name()), err)
		}
	}
	return atomicfile.SyncDir(l.dir)
}

// Close ends the progress line and closes the files. It may be called twice.
func (l *Log) Close() error {
	l.Unwatch()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.console.clear()
	var errs []error
	for _, f := range []*os.File{l.metrics, l.runLog} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if l.events != nil {
		errs = append(errs, l.events.f.Close())
	}
	l.metrics, l.runLog, l.events = nil, nil, nil
	return errors.Join(errs...)
}

// steadyClock returns a clock that goes on from the machine's time of now whatever that is set to later: rows of one process never go
// back, and never leap by years. It counts on while the machine sleeps.
func steadyClock() func() time.Time {
	begin, at := time.Now(), sinceBoot()
	return func() time.Time { return begin.Add(sinceBoot() - at) }
}

// sinceBoot is how long the machine has been up, asleep or not.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return time.Since(time.Time{})
	}
	return time.Duration(ts.Nano())
}

// Level is the severity of a line in run.log, by Python's names as Hydra writes them.
type Level string

const (
	LevelDebug   Level = "DEBUG"
	LevelInfo    Level = "INFO"
	LevelWarning Level = "WARNING"
	LevelError   Level = "ERROR"
)

// runLogLine is Hydra's default job log format: [%(asctime)s][%(name)s][%(levelname)s] - %(message)s.
// What a terminal would obey in the message, which may hold data, is shown.
func runLogLine(now time.Time, name string, level Level, message string) string {
	stamp := strings.Replace(now.Format("2006-01-02 15:04:05.000"), ".", ",", 1)
	return fmt.Sprintf("[%s][%s][%s] - %s\n", stamp, name, level, visible.Text(message))
}
