package experiments

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/build"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/reports/record"
)

// summaryBefore describes the run before its task: the time is that of earlier attempts.
func (r *run) summaryBefore() record.Summary {
	s := record.Summary{
		Title: r.title(), Task: r.Config.Task, Command: r.command(), Overrides: r.Overrides, Seed: r.Config.Seed,
		Start: r.begin.Format(time.RFC3339), Versions: r.versions(), Phases: []record.PhaseSummary{}, Warnings: []string{},
		Findings: []record.Finding{},
	}
	if r.earlier.seconds > 0 {
		s.Start, s.WallSeconds = r.earlier.start.Format(time.RFC3339), r.earlier.seconds
	}
	return s
}

// summary describes the run's end.
func (r *run) summary(taskErr error) record.Summary {
	s := r.summaryBefore()
	s.State, s.Device, s.Threads = record.StateDone, r.Device, r.Threads()
	s.WallSeconds += time.Since(r.begin).Seconds()
	var interrupted *runfolder.InterruptedError
	switch {
	case errors.As(taskErr, &interrupted):
		s.State, s.Error = record.StateInterrupted, taskErr.Error()
	case taskErr != nil:
		s.State, s.Error = record.StateFailed, taskErr.Error()
	}
	s.Data = r.Data
	if res := r.Result; res != nil {
		s.Account = res.Account
		if res.Pruned != "" && taskErr == nil {
			s.State = record.StatePruned
		}
		s.Best = &record.BestSummary{Metric: res.Metric, Mode: res.Mode, Value: record.Number(res.Value), Phase: res.BestPhase,
			Epoch: res.BestEpoch, Checkpoint: res.BestFile, Choice: res.Choice}
		if len(res.Warnings) > 0 {
			s.Best.Reason = res.Warnings[0]
		}
	}
	if e := r.Evaluation; e != nil {
		s.Evaluation, s.Best = e, e.Best()
	}
	if rows, err := record.ReadRun(r.Dir); err != nil {
		r.Log.Warnf("summary: %v", err)
	} else {
		s.AddRecorded(rows)
		for _, of := range rows.Steps {
			for _, f := range doctor.Throughput(of.Phase, of.Column("step_seconds"), r.Config.Checks.Rows()) {
				r.OfMachine(f, of.Phase)
			}
		}
		s.Findings = append(s.Findings, r.Found...)
	}
	return s
}

// command is the argv that repeats the run.
func (r *run) command() []string { return append([]string{program.Called()}, r.Overrides...) }

func (r *run) versions() map[string]string {
	v := map[string]string{"fulcrum": build.Version, "go": runtime.Version(), "os": runtime.GOOS + "/" + runtime.GOARCH, "config": r.Hash}
	if c := build.Commit(); c != "" {
		v["commit"] = c
	}
	if name := hostmem.Processor(); name != "" {
		v["cpu"] = name
	}
	if n := r.Ranks.Size(); n > 1 {
		v["processes"] = fmt.Sprintf("%d, on %s", n, strings.Join(list.Unique(r.Ranks.Hosts()), ", "))
	}
	if n := r.Config.Parallel.Cut(); n > 1 {
		v["shards"] = strconv.Itoa(n)
	}
	if r.Device != "" {
		v["libtorch"] = torchx.Version()
	}
	return v
}

// attempts is the time that a run was at work before a resume.
type attempts struct {
	start   time.Time
	seconds float64
}

// earlierAttempts adds up the attempts of the run in dir: from its rows, because one that was killed left no summary, or from the summary,
// which knows the time before the first row and after the last. Of rows it is the time between the first and the last of each attempt,
// which a resume event begins: attempts follow each other as their rows do, whatever the clock was set to in between.
func earlierAttempts(dir string) (s attempts) {
	last := 0.0
	_ = record.EachRow(dir, func(row record.Row) error { // what cannot be read is named where the run is
		switch {
		case s.start.IsZero():
			s.start = time.UnixMilli(int64(row.Time * 1000))
		case row.Text("event") != "resume":
			s.seconds += max(0, row.Time-last)
		}
		last = row.Time
		return nil
	})
	if former, _ := record.ReadSummary(dir); former != nil && former.WallSeconds > s.seconds {
		if start, err := time.Parse(time.RFC3339, former.Start); err == nil {
			return attempts{start, former.WallSeconds}
		}
	}
	return s
}
