package experiments

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fulcrum/internal/nearpath"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports"
)

// train runs task=train: data, policy, baselines, the schedule, the report.
func train(ctx context.Context, r *run) error {
	c := r.cfg
	make, err := Policies().Get(c.Policy)
	if err != nil {
		return err
	}
	if from := c.Init.Checkpoint; from != nil { // before any data is read
		if _, err := resolveCheckpoint("init.checkpoint", *from); err != nil {
			return err
		}
	}
	r.announce()
	w, err := make(r)
	if err != nil {
		return err
	}
	policy := w.Policy()
	defer policy.Free()
	r.data = w.Summary()
	related, err := w.Clusters(c.Eval.by())
	if err != nil {
		return err
	}
	if err := r.recordClusters(related); err != nil {
		return err
	}
	plan, err := planOf(c, w)
	if err != nil {
		return err
	}
	r.data = w.Summary() // with what the phases leave out
	r.tellSkipped(r.data)
	initial := policy.Clone()
	defer initial.Free()
	r.logf("%s: %d parameters on %s, %d threads", c.Policy, policy.Params().Numel(), r.device, torchx.Threads())
	export, err := w.Export()
	if err != nil {
		return err
	}
	rec := recorder{Log: r.log, folder: r.folder, plotter: r.plotter}
	if asker, ok := w.(interface{ Asked(query int64) asked }); ok {
		rec.ask = asker.Asked
	}
	env := &phases.Env{Policy: policy, Initial: initial, Data: w.PhasesData(), Seed: c.Seed, Rec: rec, Dir: r.dir, ConfigHash: r.hash, Export: export, GoOn: c.compatible()}
	r.begun = true
	if r.saved == nil {
		if err := r.preflight(ctx, w, plan); err != nil {
			return err
		}
		if err := phases.Check(plan, env); err != nil {
			return err
		}
	}
	if c.DryRun {
		r.logf("dry_run: everything loads and checks; nothing was trained")
		return nil
	}
	if r.saved == nil && r.fresh != "" {
		if err := r.log.Record("event", "init", 0, 0, 0, map[string]any{"event": "fresh_parameters", "severity": "note", "message": r.fresh}); err != nil {
			return err
		}
	}
	if r.saved == nil {
		if err := w.Baselines(); err != nil {
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
	if env.Judge, err = r.judge(epochs); err != nil {
		return err
	}
	result, err := phases.Run(ctx, plan, env, r.saved)
	var unknown *phases.MetricError
	if errors.As(err, &unknown) { // the initial policy has shown it
		return usage.Errorf("%v", err)
	}
	if err != nil {
		return err
	}
	r.result = &result
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

// mapTorch reads the data while libtorch is being mapped, then makes the run's device ready.
func (r *run) mapTorch(read func() error) error {
	loaded := make(chan error, 1)
	go func() { loaded <- torchx.Load() }()
	if err := read(); err != nil {
		return err // at once: what is wrong with the data needs no tensor
	}
	if err := <-loaded; err != nil {
		return err
	}
	torchx.Attach(r.threads())
	torchx.SetDeterministic(r.cfg.Deterministic)
	device, err := torchx.Device(r.cfg.Device)
	if err != nil {
		return usage.Errorf("%v", err)
	}
	r.device = device
	return nil
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
func (r *run) warnUntrained(checkpoint string) {
	if untrained(checkpoint) {
		last := filepath.Join(filepath.Dir(checkpoint), "last.safetensors")
		r.log.Warnf("%s is the policy that its run began with: no epoch did better by checkpoint.best.metric. Training ended with %s",
			checkpoint, last)
	}
}

// seconds since the run's start.
func (r *run) elapsed() float64 { return time.Since(r.begin).Seconds() }
