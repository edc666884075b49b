// Package launcher runs the jobs of a sweep: one after another, several at a time on this machine, or
// on a cluster. Whatever the launcher, a job is one supervised process (Supervise) with a record
// of its attempts in its own run folder; the launcher decides where and when that process runs.
package launcher

import (
	"context"
	"time"

	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
)

// Job is one job of a sweep, with all that a machine needs to start it.
type Job struct {
	Num     int      `json:"num"`
	Sweep   string   `json:"sweep"`         // sweep folder, absolute
	Dir     string   `json:"dir"`           // run folder, absolute
	Args    []string `json:"args"`          // of the program for a fresh start
	Cwd     string   `json:"cwd"`           // where it starts: relative paths mean the same
	Env     []string `json:"env,omitempty"` // KEY=VALUE, beside the launcher's own environment
	Threads int      `json:"threads"`       // cores that it keeps busy, at least 1
	GPUs    int      `json:"gpus"`          // that it wants for its own: one for each of its processes
}

// The states of an attempt, and of a job in the ledger.
const (
	Queued      = "queued"
	Running     = "running"
	Done        = "done"
	Failed      = "failed"
	Pruned      = "pruned"      // stopped early on purpose: a result, not a failure
	Interrupted = "interrupted" // of an attempt: stopped by a signal with its state saved
	Lost        = "lost"        // was running, and its process is gone without a word
	Skipped     = "skipped"     // of a job: the one that it starts from failed
)

// Attempt is one try of a job, as its supervisor (or, for one that died, its launcher) saw it.
type Attempt struct {
	Num      int       `json:"num"`
	Try      int       `json:"try"` // from 1
	State    string    `json:"state"`
	ID       string    `json:"id"` // hydra.job.id: the job's number, or Slurm's ARRAY_TASK
	PID      int       `json:"pid,omitempty"`
	Host     string    `json:"host"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int       `json:"exit_code"`         // -1 when a signal ended the process
	Cause    string    `json:"cause,omitempty"`   // why it failed: the program's last word, or the launcher's
	Tail     []string  `json:"tail,omitempty"`    // last lines of its output
	Resumed  bool      `json:"resumed,omitempty"` // went on with what an earlier attempt had saved
	Requeued bool      `json:"-"`                 // in an event: the launcher starts the job again by itself

	Err error `json:"-"` // in an event, alone: the launcher cannot watch its jobs any longer
}

// Ended reports whether state is one that a job stays in.
func Ended(state string) bool {
	return state == Done || state == Failed || state == Pruned || state == Skipped
}

// Launcher runs jobs. Its methods are called from one goroutine; events come from others.
type Launcher interface {
	// Submit hands jobs over. The launcher starts them when it has room, in the order of their numbers.
	Submit(ctx context.Context, jobs []Job) error
	// Adopt takes over jobs that an earlier controller had handed over and returns the numbers of those
	// that are still queued or running; nobody runs the others.
	Adopt(ctx context.Context, jobs []Job) ([]int, error)
	// Events tells when an attempt starts (State Running) and ends (any other state). With its end the
	// launcher is done with the job, unless the attempt is Requeued. A controller that has adopted a
	// job may be told again what an earlier one was told. The receiver calls an event's Heard.
	Events() <-chan Attempt
	// Stop ends the controller's part and returns at once; Events is closed behind the last event. Jobs
	// that have not started are dropped. Those that run are told to save their state and to end, except,
	// unless cancel is set, those that outlive the controller (a cluster's).
	Stop(cancel bool)
	// Outlived reports whether jobs go on when this process ends: they are a cluster's.
	Outlived() bool
}

// Request is what a launcher is opened for.
type Request struct {
	Name    string              // as hydra/launcher gives it
	Sweep   string              // sweep folder, absolute
	Cwd     string              // where jobs start
	Options func(dst any) error // reads hydra.launcher over the defaults in dst
	Slurm   func(Request) (Open, error)
}

// Open opens a launcher whose jobs run program.
type Open func(program string) (Launcher, error)

// table lists what hydra/launcher may name: ours, and Hydra's plugins by the one of ours that runs their jobs. slurm is nil where it is
// not built in.
func table(slurm func(Request) (Open, error)) *registry.Table[func(Request) (Open, error)] {
	t := registry.New[func(Request) (Open, error)]("launcher")
	t.Add("basic", basic)
	t.Add("local", openLocal)
	t.Add("joblib", joblib)
	t.Add("submitit_local", submititLocal)
	t.Add("slurm", slurm)
	t.Add("submitit_slurm", slurm)
	return t
}

// Prepare reads the options of the launcher that a request names; nothing is opened or written yet.
func Prepare(r Request) (Open, error) { return prepare(table(r.Slurm), r) }

func prepare(t *registry.Table[func(Request) (Open, error)], r Request) (Open, error) {
	named, err := t.Get(r.Name)
	if err != nil {
		return nil, usage.Errorf("hydra/launcher: %v", err)
	}
	if named == nil {
		return nil, usage.Errorf("hydra/launcher=%s: this program is built without the annex \"Slurm\"", r.Name)
	}
	return named(r)
}
