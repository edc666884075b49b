package tasks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/experiments/checks"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/workload"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/ranks"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// trainTask is task=train. Validation compares losses and advantages as rce, sft and grpo would have them, whatever the schedule.
func trainTask() job.Task {
	return job.Task{Run: train, On: onData, Saves: true, Policy: true, Trains: true,
		Sections: []string{"data", "init", "optim", "lr_schedule", "parallel", "checkpoint", "checks", "eval", "evidence"},
		Reads:    []string{"rce.temperature", "rce.rewards", "grpo.advantage"}}
}

// train runs task=train: data and policy, the phases of the schedule, the checks before the first step, training, examples.
func train(ctx context.Context, j *job.Job) error {
	c := j.Config
	w, err := openWorkload(ctx, j)
	if err != nil {
		return err
	}
	policy := w.Policy()
	defer policy.Free()
	plan, err := planned(j, w)
	if err != nil {
		return err
	}
	j.Logf("%s: %s, on %s, %s", c.Policy, parameters(w), j.Device, page.Plural(torchx.Threads(), "thread"))
	env, err := environment(j, w)
	if err != nil {
		return err
	}
	var seen []string
	env.Look = func() (_ []string, err error) {
		seen, err = look(j, seen)
		return seen, err
	}
	if err := unchangedData(j, env); err != nil {
		return err
	}
	if err := j.Alike(env); err != nil {
		return err
	}
	if err := j.JoinPeers(env); err != nil {
		return err
	}
	j.Begun = true
	fresh, err := ranks.Share(j.Ranks, "the start of a run", j.Saved == nil, nil)
	if err == nil && fresh {
		err = checks.Preflight(ctx, j, w, plan)
	}
	if err != nil {
		return err
	}
	env.Initial = policy.Clone() // behind the preflight, whose largest step has a copy of its own
	defer env.Initial.Free()
	if fresh {
		if err := phases.Check(plan, env); err != nil {
			return err
		}
	}
	if !j.Ranks.First() {
		return job.Follow(ctx, plan, env)
	}
	if c.DryRun {
		j.Logf("dry_run: everything loads and checks; nothing was trained")
		return nil
	}
	if j.Saved == nil {
		j.Baselines = map[string]float64{}
		if err := firstRows(j, w); err != nil {
			return err
		}
		env.Baselines = j.Baselines
	}
	if epochs := announcePlan(j, plan); j.Judge != nil {
		if env.Judge, err = j.Judge(epochs); err != nil {
			return err
		}
	}
	j.Holder.Heed()
	result, err := phases.Run(ctx, plan, env, j.Saved)
	logPeak(j)
	if _, ok := errors.AsType[*phases.MetricError](err); ok { // the initial policy has shown it
		return usage.Errorf("%v", err)
	}
	if err == nil {
		err = j.Vouched(ctx)
	}
	if err != nil {
		return err
	}
	j.Result = &result
	return w.Examples(env, result)
}

// unchangedData refuses a resume with other data than the state has learned from.
func unchangedData(j *job.Job, env *phases.Env) error {
	_, err := env.Look()
	s := j.Saved
	if err != nil || s == nil {
		return err
	}
	if err := sameInputs(j, s.Inputs()); err != nil {
		return err
	}
	if s.DataHash() != "" && s.DataHash() != env.DataHash {
		return usage.Errorf("the data are not those that the saved state has learned from: put the files back, or start anew elsewhere: %s",
			program.OnFolder("--rerun", j.Dir))
	}
	return nil
}

// parameters says how many numbers are trained, and of how many.
func parameters(w job.Workload) string {
	trained := w.Policy().Params().Numel()
	if all, ok := w.(workload.Weigher); ok && all.Weights() > trained {
		return fmt.Sprintf("%d of %d parameters are trained", trained, all.Weights())
	}
	return fmt.Sprintf("%d parameters, all trained", trained)
}

// logPeak says what a GPU's memory held at most, beside the preflight's forecast.
func logPeak(j *job.Job) {
	n, ok := torchx.CUDAIndex(j.Device)
	if !ok {
		return
	}
	if m, err := torchx.MemoryOfCUDA(n, false); err == nil {
		j.Logf("memory: %s: %s at the peak of the run, %s taken for it, of %s", j.Device, hostmem.Size(m.AllocatedMax),
			hostmem.Size(m.ReservedMax), hostmem.Size(m.Total))
	}
}

// openWorkload reads the data and opens the policy that the configuration names.
func openWorkload(ctx context.Context, j *job.Job) (job.Workload, error) {
	policy, err := j.Config.Entries.Policies.Get(j.Config.Policy)
	if err != nil {
		return nil, err
	}
	if from := j.Config.Init.Checkpoint; from != nil { // before any data is read
		if _, err := job.ResolveCheckpoint("init.checkpoint", *from); err != nil {
			return nil, err
		}
	}
	announce(j)
	return policy.New(ctx, j)
}

// planned returns the phases to train, and says what of the data they use.
func planned(j *job.Job, w job.Workload) (phases.Plan, error) {
	j.Data = w.Summary()
	var related workload.Clusters
	if g, ok := w.(workload.Grouper); ok {
		var err error
		if related, err = g.Clusters(j.Config.Eval.GroupedBy()); err != nil {
			return phases.Plan{}, err
		}
	}
	if err := workload.RecordClusters(j, related); err != nil {
		return phases.Plan{}, err
	}
	plan, err := job.PlanOf(j.Config, w)
	if err != nil {
		return plan, err
	}
	for _, name := range j.Config.Schedule {
		if !slices.ContainsFunc(plan.Phases, func(p phases.Phase) bool { return p.Info().Name == name }) {
			j.Log.Warnf("%s.epochs=0 leaves %[1]s out of the schedule", name)
		}
	}
	j.Data = w.Summary() // with what the phases leave out
	scripts, err := rewardScripts(j)
	if err != nil {
		return plan, err
	}
	for _, i := range scripts {
		if j.Data.Scripts == nil {
			j.Data.Scripts = map[string]string{}
		}
		name := i.Name()
		if j.Data.Scripts[name] != "" {
			name = i.Path
		}
		j.Data.Scripts[name] = i.Digest
	}
	workload.TellSkipped(j)
	return plan, nil
}

// environment returns what phases train in.
func environment(j *job.Job, w job.Workload) (*phases.Env, error) {
	env := &phases.Env{Policy: w.Policy(), Data: w.PhasesData(), Seed: j.Config.Seed, Dir: j.Dir,
		ConfigHash: j.Hash, DataHash: j.Data.Fingerprint, AllowNonFinite: j.Config.AllowsNonFinite(),
		WithHeads: workload.WithHeads(w.Policy()), Untrained: j.Config.Init.Checkpoint == nil,
		Placebo: strings.HasPrefix(j.Config.Control, "placebo"), Shards: j.Config.Parallel.Cut(), Ranks: j.Ranks,
		Backwards: os.Getenv(runfolder.Repeats) != ""}
	if j.Config.Compatible() {
		env.Gradients = j.Config.Entries.Reference.Gradients(j.Config)
	}
	if exporter, ok := w.(workload.Exporter); ok {
		var err error
		if env.Export, err = exporter.Export(); err != nil {
			return nil, err
		}
	} else if j.Config.Checkpoint.Format == "pt" {
		return nil, usage.Errorf("checkpoint.format=pt is the pointer reference's layout: want safetensors for policy=%s", j.Config.Policy)
	}
	rec := job.Recorder{Job: j}
	if asker, ok := w.(workload.Asker); ok {
		rec.Ask = asker.Asked
	}
	env.Rec = rec
	return env, nil
}

// firstRows records what is known before the first step: parameters that start fresh, and the baselines.
func firstRows(j *job.Job, w job.Workload) error {
	if j.Fresh != "" {
		fields := map[string]any{"event": "fresh_parameters", "severity": "note", "message": j.Fresh}
		if err := j.Log.Record("event", "init", 0, 0, 0, fields); err != nil {
			return err
		}
	}
	return w.Baselines()
}

// announcePlan tells the log how long training will be, and returns its epochs.
func announcePlan(j *job.Job, plan phases.Plan) (epochs int) {
	var planned []record.PhasePlan
	for _, p := range plan.Phases {
		info := p.Info()
		epochs += info.Epochs
		planned = append(planned, record.PhasePlan{Name: info.Name, Epochs: info.Epochs, StepsPerEpoch: phases.StepsPerEpoch(p)})
	}
	j.Log.Plan(planned)
	return epochs
}

// announce says what is about to be read, which may take minutes: files and folders with their sizes, or the built-in
// data.
func announce(j *job.Job) {
	var parts []string
	if d, err := j.Config.Data.Dataset(); err != nil || d.Files == nil {
		parts = []string{"data." + j.Config.Data.Name + " (built in)"}
	}
	parts = append(parts, list.Map(filesOf(j.Config), func(path string) string { return path + sizeOf(path) })...)
	j.Logf("reading %s and libtorch", strings.Join(parts, ", "))
}

// filesOf returns the files and folders that a run reads its data and its policy from.
func filesOf(c *job.Config) (paths []string) {
	var files []*string
	if d, err := c.Data.Dataset(); err == nil && d.Files != nil {
		files = d.Files(c.Data)
	}
	if text := c.Text(); text != nil {
		files = append(files, text.Path, text.Adapter)
	}
	for _, path := range append(files, c.Init.Checkpoint) {
		if path != nil {
			paths = append(paths, *path)
		}
	}
	return paths
}

// sizeOf is " (1.2 GiB)", of a folder the files in it; "" for what cannot be read.
func sizeOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	size := info.Size()
	if info.IsDir() {
		size = 0
		files, err := os.ReadDir(path)
		if err != nil {
			return ""
		}
		for _, f := range files {
			if info, err := os.Stat(filepath.Join(path, f.Name())); err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
		}
	}
	return " (" + hostmem.Size(float64(size)) + ")"
}
