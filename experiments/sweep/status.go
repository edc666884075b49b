package sweep

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// Exists reports whether dir is the folder of a sweep: one that has a ledger, or that was killed before it had one.
func Exists(dir string) bool { return ledger.Exists(dir) || unbegun(dir) }

// unbegun reports whether a sweep was killed in dir before it had a ledger, and so before any of its jobs.
func unbegun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, planFile))
	return err == nil && !ledger.Exists(dir)
}

// LostLedger refuses a sweep's folder whose ledger is gone, or was never made; nil for any other folder.
func LostLedger(dir string) error {
	if unbegun(dir) && runfolder.Locked(dir) {
		return usage.Errorf("%s: this sweep is being planned: ask again", dir)
	}
	if unbegun(dir) {
		return usage.Errorf("%s: this sweep was stopped before any of its jobs was queued; go on: %s", dir, program.OnFolder("resume", dir))
	}
	if _, err := os.Stat(filepath.Join(dir, multirunFile)); err != nil || ledger.Exists(dir) {
		return nil
	}
	jobs, err := regular.Glob(dir, filepath.Join("*", runfolder.Marker))
	if err != nil || len(jobs) == 0 {
		return usage.Errorf("%s: a sweep was stopped here before any of its jobs was queued: start it again", dir)
	}
	job := filepath.Dir(filepath.Dir(jobs[0]))
	return usage.Errorf("%s was a sweep, but its ledger %s is gone; the folders of its jobs are whole runs: %s, %s", dir, ledger.FileName,
		program.OnFolder("report", job), program.OnFolder("resume", job))
}

// checkStatus refuses a folder that has no status.
func checkStatus(dir string) error {
	if err := LostLedger(dir); err != nil {
		return err
	}
	if !ledger.Exists(dir) && !runfolder.IsRun(dir) {
		return runfolder.NoRun(dir)
	}
	return nil
}

// observed reads the ledger of a sweep and brings it up to what the folders of its jobs say.
func observed(dir string) (ledger.Sweep, []ledger.Job, error) {
	s, jobs, err := ledger.Load(dir)
	goals := GoalsOf(s)
	for i := range jobs {
		observe(dir, goals, &jobs[i])
	}
	return s, jobs, err
}

// GoalsOf returns what a sweep's ledger says that its jobs are judged by.
func GoalsOf(s ledger.Sweep) sweeper.Goals {
	goals := sweeper.Goals{Objectives: []sweeper.Objective{{}}, Optional: s.Trials == 0}
	if len(s.Objectives) > 0 {
		goals.Objectives = list.Map(s.Objectives, func(o sweeps.Objective) sweeper.Objective {
			return sweeper.Objective{Name: o.Name, Goal: map[bool]sweeper.Goal{true: sweeper.Minimize, false: sweeper.Maximize}[o.Minimize]}
		})
	}
	told, _ := sweeper.Options{Constraints: s.Constraints}.Goals() // checked when the sweep began
	goals.Constraints = told.Constraints
	return goals
}

// PrintStatus prints the jobs of a sweep, or how far one run is.
func PrintStatus(dir string) error {
	if err := checkStatus(dir); err != nil {
		return err
	}
	if !ledger.Exists(dir) {
		s, err := runStatusOf(dir)
		if err == nil {
			stdout.Printf("%s\n", s.words())
		}
		return err
	}
	s, jobs, err := observed(dir)
	if err != nil {
		return err
	}
	controlled := standing(runfolder.Locked(dir), s, jobs)
	switch {
	case controlled == record.StateRunning:
		controlled = "its controller is running; follow: " + program.OnFolder("attach", dir)
	case controlled == stopped:
		controlled = "nobody controls it; go on: " + program.OnFolder("resume", dir)
		if s.Trials > 0 {
			controlled = fmt.Sprintf("%d of %d trials, ", CountEnded(jobs), s.Trials) + controlled
		}
	}
	stdout.Printf("%s: started %s, hydra/sweeper=%s, hydra/launcher=%s: %s\n", dir,
		s.Created.Local().Format("2006-01-02 15:04"), s.Sweeper, s.Launcher, controlled)
	opt, rows := ResultOf(dir, s, jobs)
	stdout.Print(sweeps.Table(rows, opt, stdout.Width()))
	for _, line := range append(sweeps.ToldAnswers(dir), sweeps.Warned(rows, warningsOf)) {
		if line != "" {
			stdout.Print(stdout.Fold(page.PlainText(page.Markup(line)), stdout.Width(), 4) + "\n")
		}
	}
	for _, job := range jobs {
		queued := job.State == launcher.Queued
		switch {
		case job.State == launcher.Running, queued && job.Attempts > 0: // it has begun, and was interrupted
			stdout.Printf("job %d: %s\n", job.Num, runStatus(filepath.Join(dir, job.Dir)))
		case job.State == launcher.Failed, job.State == launcher.Lost, job.State == launcher.Skipped:
			stdout.Printf("job %d %s: %s\n", job.Num, job.State, job.Cause)
		case queued && job.Parent != nil && jobs[*job.Parent].State != launcher.Done:
			stdout.Printf("job %d waits for job %d (arm %s)\n", job.Num, *job.Parent, jobs[*job.Parent].Arm)
		}
	}
	return nil
}

const stopped = "stopped"

// standing is running while a controller holds the folder of a sweep, ended when nothing is left to be done, and stopped else.
func standing(held bool, s ledger.Sweep, jobs []ledger.Job) string {
	switch n := CountEnded(jobs); {
	case held:
		return record.StateRunning
	case n > 0 && n == len(jobs) && n >= s.Trials:
		return "ended"
	}
	return stopped
}

// warningsOf reads the warnings of a job; of a summary that cannot be read the report says so.
func warningsOf(j sweeps.Job) *record.Summary {
	var s struct { // a thousand summaries have 40 MB: no more than these
		Warnings []string         `json:"warnings"`
		Findings []record.Finding `json:"findings"`
	}
	if record.ReadJSON(filepath.Join(j.Dir, record.SummaryFile), &s) != nil {
		return nil
	}
	return &record.Summary{Warnings: s.Warnings, Findings: s.Findings}
}

// CountEnded returns how many jobs stay as they are.
func CountEnded(jobs []ledger.Job) int {
	return list.Count(jobs, func(j ledger.Job) bool { return launcher.Ended(j.State) })
}

// observe brings a row up to what the job's folder says: its controller may be gone, and somebody may have gone on with the run alone.
func observe(dir string, goals sweeper.Goals, job *ledger.Job) {
	at := filepath.Join(dir, job.Dir)
	if job.State != launcher.Done && job.State != launcher.Pruned {
		if s, err := record.ReadSummary(at); err == nil && s.Over() && result(dir, goals, job) == nil {
			job.State, job.Cause, job.Tail = s.State, "", nil
			return
		}
	}
	if launcher.Ended(job.State) {
		if job.State != launcher.Failed && job.State != launcher.Skipped && !hasResult(dir, *job) {
			job.State, job.Cause = launcher.Lost, "its results are gone from "+at+"; make them again: "+program.OnFolder("resume", dir)
		}
		return
	}
	attempts, err := launcher.Attempts(at)
	if err != nil {
		return
	}
	if n := len(attempts); n > 0 { // else its folder may be gone
		last := attempts[n-1]
		if last.Try < job.Attempts {
			return
		}
		job.State, job.Attempts, job.Cause = last.State, last.Try, last.Cause
	}
	switch {
	case job.State == launcher.Interrupted:
		job.State = launcher.Queued
	case job.State == launcher.Running && !launcher.Supervised(at):
		job.State, job.Cause = launcher.Lost, "its process is gone; go on: "+program.OnFolder("resume", dir)
	}
}

// runStatus says in a few words how far a run is.
func runStatus(dir string) string {
	s, err := runStatusOf(dir)
	if err != nil {
		return err.Error()
	}
	return s.words()
}

// words is the status of a run in one line.
func (s Status) words() string {
	text := s.State
	if s.Epoch > 0 {
		text += fmt.Sprintf(" after %s epoch %d", s.Phase, s.Epoch)
	}
	if s.Cause != "" { // an error of training begins with the same place
		text += ": " + strings.TrimPrefix(s.Cause, fmt.Sprintf("%s epoch %d: ", s.Phase, s.Epoch))
	}
	switch s.State {
	case record.StateRunning:
		if n := len(s.Hosts); n > 0 {
			text += fmt.Sprintf("; %d processes on %s", n, strings.Join(list.Unique(s.Hosts), ", "))
		}
	case record.StateDone, record.StatePruned:
		text += "; report: " + page.ReportPath(s.Folder)
	default:
		text += "; go on: " + program.OnFolder("resume", s.Folder)
	}
	return text
}

// runStatusOf reads how far a run is: from its rows, its summary and its lock.
func runStatusOf(dir string) (Status, error) {
	out := Status{Folder: dir, Kind: "run", Jobs: []JobStatus{}}
	rows, err := record.ReadRun(dir)
	if err != nil {
		return out, err
	}
	if n := len(rows.Epochs); n > 0 {
		out.Phase, out.Epoch = rows.Epochs[n-1].Phase, rows.Epochs[n-1].Epoch
	}
	if out.State = runfolder.State(dir); out.State == record.StateFailed && rows.Summary != nil {
		out.Cause = rows.Summary.Error
	}
	if out.State == record.StateRunning {
		out.Hosts = runfolder.Hosts(dir)
	}
	return out, nil
}
