package sweep

import (
	"path/filepath"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/stdout"
)

// Status is what run status --json prints: of a run its own fields, of a sweep those of its jobs too.
type Status struct {
	Folder  string      `json:"folder"`
	Kind    string      `json:"kind"`            // run or sweep
	State   string      `json:"state"`           // of a run: running, killed, done, …; of a sweep: running, stopped or ended
	Phase   string      `json:"phase"`           // of a run: of its last finished epoch
	Epoch   int         `json:"epoch"`           // the same; 0: none
	Cause   string      `json:"cause,omitempty"` // of a run: why it failed
	Hosts   []string    `json:"hosts,omitempty"` // of a run in several processes, while it runs: its machines by rank
	Sweeper string      `json:"sweeper"`         // of a sweep, as what follows
	Trials  int         `json:"trials"`          // that a sweeper will make; 0: the jobs are all
	Jobs    []JobStatus `json:"jobs"`            // by number
}

// JobStatus is one job of a sweep.
type JobStatus struct {
	Number     int                `json:"number"`
	Folder     string             `json:"folder"`
	State      string             `json:"state"` // queued, running, done, pruned, failed, lost or skipped
	Cause      string             `json:"cause"` // why it failed or is lost
	Overrides  []string           `json:"overrides"`
	Objectives []ledger.Objective `json:"objectives"` // empty while unknown
	Epochs     int                `json:"epochs"`
	Seconds    float64            `json:"seconds"`
	Attempts   int                `json:"attempts"`
}

// ReadStatus returns how far a run or a sweep is.
func ReadStatus(dir string) (Status, error) { return readStatus(dir, runfolder.Locked) }

// readStatus is ReadStatus for those who know whether a controller holds the folder of a sweep.
func readStatus(dir string, held func(string) bool) (Status, error) {
	if err := checkStatus(dir); err != nil {
		return Status{}, err
	}
	if !ledger.Exists(dir) {
		return runStatusOf(dir)
	}
	s, jobs, err := observed(dir)
	if err != nil {
		return Status{}, err
	}
	out := Status{Folder: dir, Kind: "sweep", Sweeper: s.Sweeper, Trials: s.Trials, Jobs: []JobStatus{}}
	for _, j := range jobs {
		out.Jobs = append(out.Jobs, JobStatus{
			Number: j.Num, Folder: filepath.Join(dir, j.Dir), State: j.State, Cause: j.Cause, Overrides: append([]string{}, j.Overrides...),
			Objectives: append([]ledger.Objective{}, j.Objectives...), Epochs: j.Epochs, Seconds: j.Seconds, Attempts: j.Attempts,
		})
	}
	out.State = standing(held(dir), s, jobs)
	return out, nil
}

// tell hands the sweep's status to whoever waits for its end.
func (p *plan) tell() {
	warn := func(text string) { stdout.Message(stdout.Errors(), "warning: "+text) }
	onEnd, err := runfolder.OnEndOf(p.master)
	if err != nil {
		warn(err.Error())
		return
	}
	if status, err := readStatus(p.dir, func(string) bool { return false }); err == nil { // whoever asks still holds the lock
		onEnd.Tell(p.dir, status.State, status, warn)
		runfolder.Callbacks("on_multirun_end", p.hydra.OnMultirun, p.dir, status.State, status, warn)
	}
}
