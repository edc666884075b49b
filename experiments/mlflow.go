package experiments

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/stdout"
	"fulcrum/reports/mlflow"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

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
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		dir = r.Dir
	}
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
	name := opt.RunName
	if name == "" {
		name = r.title() + " " + filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
	}
	if saved, err := runfolder.ReadSaved(r.Dir); err == nil {
		if job, ok := saved.Hydra.Job.Num.(int); ok { // of a sweep, which all its jobs' variables name alike
			opt.Tags["fulcrum.sweep"], opt.Tags["fulcrum.job"] = filepath.Dir(dir), strconv.Itoa(job)
			if opt.RunName != "" {
				name = fmt.Sprintf("%s/%d", name, job)
			}
			opt.Tags["mlflow.parentRunId"], opt.RunID = opt.RunID, ""
		}
	}
	opt.RunName = name
	opt.Say = func(level record.Level, text string) {
		if r.sealed.Load() {
			stdout.Message(os.Stderr, text)
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
	state := record.StateFailed
	if s, err := record.ReadSummary(r.Dir); err == nil && s != nil {
		state = s.State
		if b := s.Best; b != nil {
			r.mlflow.Tag("fulcrum.best", fmt.Sprintf("%s %.6g, %s epoch %d", b.Metric, float64(b.Value), b.Phase, b.Epoch))
		}
	}
	if text, err := os.ReadFile(page.ReportPath(r.Dir)); err == nil && state != record.StateInterrupted {
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
