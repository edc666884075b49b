package experiments

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fulcrum/internal/nearpath"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/record"
)

// train runs task=train: data, policy, baselines, the schedule, the report.
func train(ctx context.Context, j *job) error {
	c := j.cfg
	make, err := Policies().Get(c.Policy)
	if err != nil {
		return err
	}
	if from := c.Init.Checkpoint; from != nil { // before any data is read
		if _, err := resolveCheckpoint("init.checkpoint", *from); err != nil {
			return err
		}
	}
	announce(j)
	w, err := make(ctx, j)
	if err != nil {
		return err
	}
	policy := w.Policy()
	defer policy.Free()
	j.data = w.Summary()
	related, err := w.Clusters(c.Eval.by())
	if err != nil {
		return err
	}
	if err := recordClusters(j, related); err != nil {
		return err
	}
	plan, err := planOf(c, w)
	if err != nil {
		return err
	}
	j.data = w.Summary() // with what the phases leave out
	tellSkipped(j, j.data)
	initial := policy.Clone()
	defer initial.Free()
	j.logf("%s: %d parameters on %s, %d threads", c.Policy, policy.Params().Numel(), j.device, torchx.Threads())
	export, err := w.Export()
	if err != nil {
		return err
	}
	var ask func(query int64) asked
	if asker, ok := w.(interface{ Asked(query int64) asked }); ok {
		ask = asker.Asked
	}
	env := &phases.Env{Policy: policy, Initial: initial, Data: w.PhasesData(), Seed: c.Seed, Rec: j.recorder(ask), Dir: j.dir, ConfigHash: j.hash, Export: export, GoOn: c.compatible()}
	j.begun = true
	if j.saved == nil {
		if err := runPreflight(j, ctx, w, plan); err != nil {
			return err
		}
		if err := phases.Check(plan, env); err != nil {
			return err
		}
	}
	if c.DryRun {
		j.logf("dry_run: everything loads and checks; nothing was trained")
		return nil
	}
	if j.saved == nil && j.fresh != "" {
		if err := j.log.Record("event", "init", 0, 0, 0, map[string]any{"event": "fresh_parameters", "severity": "note", "message": j.fresh}); err != nil {
			return err
		}
	}
	if j.saved == nil {
		if err := w.Baselines(); err != nil {
			return err
		}
	}
	var planned []record.PhasePlan
	epochs := 0
	for _, p := range plan.Phases {
		epochs += p.Epochs()
		planned = append(planned, record.PhasePlan{Name: p.Name(), Epochs: p.Epochs(), StepsPerEpoch: phases.StepsPerEpoch(p)})
	}
	j.log.Plan(planned)
	if env.Judge, err = j.judge(epochs); err != nil {
		return err
	}
	result, err := phases.Run(ctx, plan, env, j.saved)
	var unknown *phases.MetricError
	if errors.As(err, &unknown) { // the initial policy has shown it
		return usage.Errorf("%v", err)
	}
	if err != nil {
		return err
	}
	j.result = &result
	return w.Examples(env, result)
}

// planOf makes the phases of the schedule that have epochs.
func planOf(c *Config, w workload) (phases.Plan, error) {
	plan := phases.Plan{Checkpoint: c.Checkpoint, Doctor: c.Doctor}
	for _, name := range c.Schedule {
		make, err := Phases().Get(name)
		if err != nil {
			return plan, err
		}
		phase, err := make(c, w)
		if err != nil {
			return plan, err
		}
		if phase.Epochs() > 0 {
			plan.Phases = append(plan.Phases, phase)
		}
	}
	if len(plan.Phases) == 0 {
		return plan, usage.Errorf("schedule=%v: no phase has epochs: want at least one, such as %s.epochs=1", c.Schedule, append(c.Schedule, "rce")[0])
	}
	return plan, nil
}

// resolveCheckpoint turns a run folder into its best checkpoint, else its last. key ("": none) is what names the path.
func resolveCheckpoint(key, path string) (string, error) {
	if key != "" {
		key += "="
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s%s: no such file or folder%s: want a run folder or a checkpoint file", key, path, nearpath.Hint(path))
	}
	if err != nil {
		return "", fmt.Errorf("%s%w", key, err)
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
	return "", fmt.Errorf("%s%s: the folder has no checkpoints/best.safetensors or last.safetensors; name a run folder or a checkpoint file", key, path)
}

// untrained says whether a run's best checkpoint, as resolveCheckpoint names it, is the policy that the run began with.
func untrained(checkpoint string) bool {
	real, err := filepath.EvalSymlinks(checkpoint)
	return err == nil && filepath.Base(checkpoint) == "best.safetensors" && filepath.Base(real) == phases.InitialCheckpoint
}

// warnUntrained says so.
func (j *job) warnUntrained(checkpoint string) {
	if untrained(checkpoint) {
		last := filepath.Join(filepath.Dir(checkpoint), "last.safetensors")
		j.log.Warnf("%s is the policy that its run began with: no epoch did better by checkpoint.best.metric. Training ended with %s",
			checkpoint, last)
	}
}
