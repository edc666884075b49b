package experiments

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/stdout"
	"fulcrum/reports/record"
	"fulcrum/reports/tracker"
)

// track copies the rows of a training run to its trackers. Every error of a tracker is a warning: the run does not depend on
// it.
func (r *run) track() {
	if !r.Config.Trains() || os.Getenv(runfolder.Repeats) != "" {
		return
	}
	if r.Config.Logging.WandB && r.trackers["wandb"] == nil {
		r.Log.Warnf("logging.wandb=true: this program is built without the tracker wandb")
	}
	about := r.tracked()
	for _, name := range slices.Sorted(maps.Keys(r.trackers)) {
		if sink, err := r.trackers[name](about); err != nil {
			r.Log.Warnf("%v", err)
		} else if sink != nil {
			r.Log.Mirror(sink)
			r.sinks = append(r.sinks, sink)
		}
	}
}

// tracked describes the run to trackers.
func (r *run) tracked() tracker.Run {
	dir, _ := filepath.Abs(r.Dir)
	about := tracker.Run{Dir: dir, Resumed: r.resumed, Command: strings.Join(r.command(), " "), Hash: r.Hash, Versions: r.versions(),
		Name:    r.title() + " " + filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir)),
		Logging: r.Config.Logging, Say: r.say}
	if saved, err := runfolder.ReadSaved(r.Dir); err == nil {
		if n, ok := saved.Hydra.Job.Num.(int); ok {
			about.Sweep, about.Job = filepath.Dir(dir), n
		}
	}
	return about
}

// say writes a line of a tracker into run.log, or to the standard error when the log is complete.
func (r *run) say(level record.Level, text string) {
	switch {
	case r.sealed.Load():
		stdout.Message(stdout.Errors(), text)
	case level == record.LevelWarning:
		r.Log.Warnf("%s", text)
	default:
		r.Log.Infof("%s", text)
	}
}

// untrack tells the trackers how the run ended.
func (r *run) untrack() {
	end := tracker.End{State: record.StateFailed}
	if s, err := record.ReadSummary(r.Dir); err == nil && s != nil {
		end = tracker.End{State: s.State, Best: s.Best}
	}
	for _, sink := range r.sinks {
		if err := sink.Close(end); err != nil {
			stdout.Message(stdout.Errors(), "warning: "+err.Error())
		}
	}
}
