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
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
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
	if name := cpuName(); name != "" {
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

// cpuName is the kernel's name of the processor, or "".
func cpuName() string {
	text, err := regular.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
