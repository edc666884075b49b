package experiments

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/reports/mlflow"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/wandb"
)

// tracked is what trackers of experiments are told of the run: its folder, absolute, a name, and of a sweep's job the sweep's
// folder and the job's number.
func (r *run) tracked() (dir, name, sweep string, job int) {
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		dir = r.Dir
	}
	if saved, err := runfolder.ReadSaved(r.Dir); err == nil {
		if n, ok := saved.Hydra.Job.Num.(int); ok {
			sweep, job = filepath.Dir(dir), n
		}
	}
	return dir, r.title() + " " + filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir)), sweep, job
}

// ended is how the run ended, and what was best, nil for nothing.
func (r *run) ended() (state string, best *record.BestSummary) {
	if s, err := record.ReadSummary(r.Dir); err == nil && s != nil {
		return s.State, s.Best
	}
	return record.StateFailed, nil
}

// startMLflow copies the rows of a training run to the MLflow server that MLFLOW_TRACKING_URI names. Whatever is
// wrong with it is a warning: the run does not depend on it.
func (r *run) startMLflow() {
	if !r.Config.Trains() {
		return
	}
	opt, asked, err := mlflow.FromEnv(os.Getenv)
	if !asked {
		return
	}
	if err == nil {
		opt.Params, err = mlflow.Params(r.Dir)
	}
	if err != nil {
		r.Log.Warnf("%v", err)
		return
	}
	dir, name, sweep, job := r.tracked()
	opt.Dir, opt.Resumed = r.Dir, r.resumed
	opt.Tags = map[string]string{
		"mlflow.source.name": strings.Join(r.command(), " "), "mlflow.source.type": "LOCAL", "mlflow.user": os.Getenv("USER"),
		"fulcrum.dir": dir, "fulcrum.config_hash": r.Hash,
	}
	for name, version := range r.versions() {
		switch name {
		case "commit":
			opt.Tags["mlflow.source.git.commit"] = version
		case "fulcrum":
			opt.Tags["fulcrum.version"] = version
		}
	}
	if sweep != "" {
		opt.Tags["fulcrum.sweep"], opt.Tags["fulcrum.job"] = sweep, strconv.Itoa(job)
		if opt.RunName != "" { // the variables name all its jobs alike
			opt.RunName = fmt.Sprintf("%s/%d", opt.RunName, job)
		}
		opt.Tags["mlflow.parentRunId"], opt.RunID = opt.RunID, ""
	}
	opt.RunName = cmp.Or(opt.RunName, name)
	opt.Say = func(level record.Level, text string) {
		if r.sealed.Load() {
			stdout.Message(stdout.Errors(), text)
		} else if level == record.LevelWarning {
			r.Log.Warnf("%s", text)
		} else {
			r.Log.Infof("%s", text)
		}
	}
	r.mlflow = mlflow.Start(opt)
	r.Log.Mirror(r.mlflow)
}

// endMLflow tells the server how the run ended: its state, what was best, the report as the run's description.
func (r *run) endMLflow() {
	if r.mlflow == nil {
		return
	}
	state, best := r.ended()
	if best != nil {
		r.mlflow.Tag("fulcrum.best", fmt.Sprintf("%s %.6g, %s epoch %d", best.Metric, float64(best.Value), best.Phase, best.Epoch))
	}
	if text, err := regular.ReadFile(page.ReportPath(r.Dir)); err == nil && state != record.StateInterrupted {
		r.mlflow.Tag("mlflow.note.content", withoutImages(string(text)))
	}
	r.mlflow.Close(state, []string{"report.md", "report.html", "summary.json", ".hydra/config.yaml", ".hydra/overrides.yaml"})
}

// withoutImages drops the lines of a markdown text that show a picture, which only stand in the run folder.
func withoutImages(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "](plots/") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// startWandB writes the rows of a training run to a file for W&B's client too. Whatever is wrong with it is a warning.
func (r *run) startWandB() {
	if !r.Config.Trains() || !r.Config.Logging.WandB {
		return
	}
	opt := wandb.Options{Dir: r.Dir, Entity: os.Getenv("WANDB_ENTITY"), Project: cmp.Or(os.Getenv("WANDB_PROJECT"), "fulcrum")}
	_, opt.Name, opt.Group, _ = r.tracked()
	var err error
	if opt.Config, err = mlflow.Params(r.Dir); err == nil {
		r.wandb, err = wandb.Start(opt)
	}
	if err != nil {
		r.Log.Warnf("W&B: %v; this run is not logged for it", err)
		r.wandb = nil
		return
	}
	r.Log.Mirror(r.wandb)
}

// endWandB closes the file with how the run ended.
func (r *run) endWandB() {
	state, _ := r.ended()
	if err := r.wandb.Close(state); err != nil {
		stdout.Message(stdout.Errors(), "warning: "+err.Error())
	}
}
