package experiments

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"fulcrum/beamdata"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/reports"
	"fulcrum/selector/pointer"
)

// train runs task=train: data, policy, baselines, the schedule, the report.
func train(ctx context.Context, r *run) error {
	c := r.cfg
	bundle, err := r.loadData()
	if err != nil {
		return err
	}
	if c.compatible() {
		c.reproduce(bundle.Format)
	}
	data := newTrainData(bundle)
	if bundle.Val == nil || bundle.Val.Len() == 0 {
		return usagef("data.name=%s: no validation queries: lower data.train_ratio or name data.val_beams", bundle.Name)
	}
	if err := checkBestMetric(c.Checkpoint.Best.Metric, bundle); err != nil {
		return err
	}
	plan := phases.Plan{Checkpoint: c.Checkpoint}
	for _, name := range c.Schedule {
		make, err := Phases().Get(name)
		if err != nil {
			return err
		}
		phase, err := make(c, data)
		if err != nil {
			return err
		}
		if phase.Epochs() > 0 {
			plan.Phases = append(plan.Phases, phase)
		}
	}
	if len(plan.Phases) == 0 {
		return usagef("schedule=%v: no phase has epochs", c.Schedule)
	}
	policy, err := r.policy(bundle.Val.Table.Dim)
	if err != nil {
		return err
	}
	defer policy.Free()
	policy.SetShots(shotsOf(policy, bundle)) // the checkpoints of this run say how many examples it selects
	data.serve(policy)
	initial := policy.Clone()
	defer initial.Free()
	r.logf("%s: %d parameters on %s, %d threads", c.Policy, policy.Params().Numel(), r.device, torchx.Threads())
	if c.DryRun {
		r.logf("dry_run: everything loads and checks; nothing was trained")
		return nil
	}
	var export func(checkpoint, phase string, epoch int, metrics map[string]any) error
	if c.Checkpoint.Format == "pt" {
		if err := policy.FitsReference(); err != nil {
			return usagef("checkpoint.format=pt: %v", err)
		}
		export = r.exportTrainer
	}
	env := &phases.Env{Policy: policy, Initial: initial, Data: data.phasesData(c, *policy.Options().ShotNum), Seed: c.Seed, Rec: recorder{r.log, r.plotter}, Dir: r.dir, ConfigHash: r.hash, Export: export}
	if r.saved == nil {
		if err := r.baselines(bundle, env.Data.Shots); err != nil {
			return err
		}
	}
	var planned []reports.PhasePlan
	epochs := 0
	for _, p := range plan.Phases {
		epochs += p.Epochs()
		planned = append(planned, reports.PhasePlan{Name: p.Name(), Epochs: p.Epochs(), StepsPerEpoch: phases.StepsPerEpoch(p)})
	}
	r.log.Plan(planned)
	env.GoOn = c.compatible()
	if env.Judge, err = r.judge(epochs); err != nil {
		return err
	}
	result, err := phases.Run(ctx, plan, env, r.saved)
	var unknown *phases.MetricError
	if errors.As(err, &unknown) { // the initial policy has shown it
		return &UsageError{err.Error()}
	}
	if err != nil {
		return err
	}
	r.result = &result
	return r.examples(bundle, initial, env, result)
}

// checkBestMetric refuses a checkpoint.best.metric that the validation queries cannot give.
func checkBestMetric(metric *string, b *beamdata.Bundle) error {
	if metric == nil {
		return nil
	}
	switch *metric {
	case "val_reward", "val_accuracy":
		if b.Val.Scorer == nil {
			return usagef("checkpoint.best.metric=%s: data.name=%s has no reader to score selections (data.reader)", *metric, b.Name)
		}
	case "val_loss", "val_advantage":
		for i := range b.Val.Len() {
			if b.Val.NumCandidates(i) > 0 {
				return nil
			}
		}
		return usagef("checkpoint.best.metric=%s: no validation query of data.name=%s has recorded beams", *metric, b.Name)
	}
	return nil
}

// loadData reads the data while libtorch is being mapped.
func (r *run) loadData() (*beamdata.Bundle, error) {
	loaded := make(chan error, 1)
	go func() { loaded <- torchx.Load() }()
	bundle, err := beamdata.Load(r.cfg.Data)
	if err != nil {
		return nil, err // at once: what is wrong with the data needs no tensor
	}
	if err := <-loaded; err != nil {
		return nil, err
	}
	torchx.Attach(r.threads())
	torchx.SetDeterministic(r.cfg.Deterministic)
	if r.device, err = torchx.Device(r.cfg.Device); err != nil {
		return nil, &UsageError{err.Error()}
	}
	r.bundle = bundle
	if bundle.Notice != "" {
		r.logf("data: %s", bundle.Notice)
	}
	return bundle, nil
}

// policy builds the policy for d-wide embeddings: fresh, or from init.checkpoint.
func (r *run) policy(d int) (*pointer.Policy, error) {
	if r.cfg.Init.Checkpoint == nil {
		return pointer.New(r.cfg.Selector, d, r.cfg.Seed, r.device)
	}
	path, err := resolveCheckpoint(*r.cfg.Init.Checkpoint)
	if err != nil {
		return nil, err
	}
	p, err := pointer.Open(path, pointer.OpenOptions{Options: r.cfg.Selector, Overridden: r.overridden, Dim: d, Seed: r.cfg.Seed, Device: r.device, Strict: r.cfg.Init.Strict,
		Warn: func(message string) { r.log.Warnf("%s", message) }})
	var conflict *pointer.ConflictError
	if errors.As(err, &conflict) {
		return nil, &UsageError{err.Error()}
	}
	return p, err
}

// resolveCheckpoint turns a run folder into its best checkpoint, else its last.
func resolveCheckpoint(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("init.checkpoint=%s: %w", path, err)
	}
	if !info.IsDir() {
		return path, nil
	}
	for _, name := range []string{"best", "last"} {
		file := filepath.Join(path, "checkpoints", name+".safetensors")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("init.checkpoint=%s: the folder has no checkpoints/best.safetensors or last.safetensors; name a run folder or a checkpoint file", path)
}

// baselines scores random, similarity and oracle selections on the validation and held-out queries.
func (r *run) baselines(b *beamdata.Bundle, shots int) error {
	for _, split := range []struct {
		name string
		set  *beamdata.Set
	}{{"val", b.Val}, {b.EvalName, b.Eval}} {
		if split.set == nil || split.set.Len() == 0 || split.set.Scorer == nil {
			continue
		}
		similar := beamdata.Similarity(split.set, shots)
		for _, of := range []struct {
			name string
			sel  beamdata.Selections
		}{
			{"random", beamdata.Random(split.set, r.cfg.Data.SplitSeed, 20, shots)},
			{"similarity", beamdata.ScoreAll(split.set, similar)},
			{"oracle", beamdata.ScoreAll(split.set, beamdata.Oracle(split.set, shots))},
		} {
			if err := r.recordBaseline(split.name, of.name, split.set, of.sel, shots); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) recordBaseline(split, name string, set *beamdata.Set, sel beamdata.Selections, shots int) error {
	fields := map[string]any{"split": split, "policy": name, "reward": sel.Mean()}
	known := !math.IsNaN(sel.MeanAccuracy())
	if known {
		fields["accuracy"] = sel.MeanAccuracy()
	}
	if err := r.log.Record(reports.KindEval, "", 0, 0, 0, fields); err != nil {
		return err
	}
	if err := r.log.Scores(split, name, "", 0, "reward", shots, set.IDs, sel.Reward); err != nil || !known {
		return err
	}
	return r.log.Scores(split, name, "", 0, "accuracy", shots, set.IDs, sel.Accuracy)
}

// seconds since the run's start.
func (r *run) elapsed() float64 { return time.Since(r.begin).Seconds() }
