package tasks

import (
	"context"
	"errors"

	"fulcrum/experiments/checks"
	"fulcrum/experiments/job"
	"fulcrum/experiments/leverplus"
	"fulcrum/experiments/workload"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/record"
)

// train runs task=train: data, policy, baselines, the schedule, the report.
func train(ctx context.Context, j *job.Job) error {
	c := j.Config
	make, err := workload.Policies().Get(c.Policy)
	if err != nil {
		return err
	}
	if from := c.Init.Checkpoint; from != nil { // before any data is read
		if _, err := job.ResolveCheckpoint("init.checkpoint", *from); err != nil {
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
	j.Data = w.Summary()
	related, err := w.Clusters(c.Eval.GroupedBy())
	if err != nil {
		return err
	}
	if err := workload.RecordClusters(j, related); err != nil {
		return err
	}
	plan, err := job.PlanOf(c, w)
	if err != nil {
		return err
	}
	j.Data = w.Summary() // with what the phases leave out
	workload.TellSkipped(j, j.Data)
	initial := policy.Clone()
	defer initial.Free()
	j.Logf("%s: %d parameters on %s, %d threads", c.Policy, policy.Params().Numel(), j.Device, torchx.Threads())
	export, err := w.Export()
	if err != nil {
		return err
	}
	rec := job.Recorder{Job: j}
	if asker, ok := w.(workload.Asker); ok {
		rec.Ask = asker.Asked
	}
	env := &phases.Env{Policy: policy, Initial: initial, Data: w.PhasesData(), Seed: c.Seed, Rec: rec, Dir: j.Dir, ConfigHash: j.Hash, Export: export,
		AllowNonFinite: c.Compatible(), Gradients: leverplus.Gradients(c), WithHeads: workload.WithHeads(policy)}
	j.Begun = true
	if j.Saved == nil {
		if err := checks.Preflight(ctx, j, w, plan); err != nil {
			return err
		}
		if err := phases.Check(plan, env); err != nil {
			return err
		}
	}
	if c.DryRun {
		j.Logf("dry_run: everything loads and checks; nothing was trained")
		return nil
	}
	if j.Saved == nil && j.Fresh != "" {
		if err := j.Log.Record("event", "init", 0, 0, 0, map[string]any{"event": "fresh_parameters", "severity": "note", "message": j.Fresh}); err != nil {
			return err
		}
	}
	if j.Saved == nil {
		if err := w.Baselines(); err != nil {
			return err
		}
	}
	var planned []record.PhasePlan
	epochs := 0
	for _, p := range plan.Phases {
		info := p.Info()
		epochs += info.Epochs
		planned = append(planned, record.PhasePlan{Name: info.Name, Epochs: info.Epochs, StepsPerEpoch: phases.StepsPerEpoch(p)})
	}
	j.Log.Plan(planned)
	if j.Judge != nil {
		if env.Judge, err = j.Judge(epochs); err != nil {
			return err
		}
	}
	result, err := phases.Run(ctx, plan, env, j.Saved)
	var unknown *phases.MetricError
	if errors.As(err, &unknown) { // the initial policy has shown it
		return usage.Errorf("%v", err)
	}
	if err != nil {
		return err
	}
	j.Result = &result
	return w.Examples(env, result)
}
