package experiments

import (
	"cmp"
	"os"
	"path/filepath"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/stdout"
	"fulcrum/reports/mlflow"
	"fulcrum/reports/record"
	"fulcrum/reports/wandb"
)

// startWandB writes the rows of a training run to a file for W&B's client too. Whatever is wrong with it is a warning.
func (r *run) startWandB() {
	if !r.Config.Trains() || !r.Config.Logging.WandB {
		return
	}
	opt := wandb.Options{Dir: r.Dir, Entity: os.Getenv("WANDB_ENTITY"), Project: cmp.Or(os.Getenv("WANDB_PROJECT"), "fulcrum")}
	dir, err := filepath.Abs(r.Dir)
	if err == nil {
		opt.Name = r.title() + " " + filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
		if saved, err := runfolder.ReadSaved(r.Dir); err == nil {
			if _, job := saved.Hydra.Job.Num.(int); job {
				opt.Group = filepath.Dir(dir) // of a sweep's jobs
			}
		}
		opt.Config, err = mlflow.Params(r.Dir)
	}
	if err == nil {
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
	state := record.StateFailed
	if s, err := record.ReadSummary(r.Dir); err == nil && s != nil {
		state = s.State
	}
	if err := r.wandb.Close(state); err != nil {
		stdout.Message(os.Stderr, "warning: "+err.Error())
	}
}
