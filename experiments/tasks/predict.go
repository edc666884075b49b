package tasks

import (
	"cmp"
	"context"
	"path/filepath"

	"fulcrum/beamdata"
	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/option"
	"fulcrum/internal/stdout"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// PredictOptions configures task=predict.
type PredictOptions struct {
	// file to write; null = predictions.jsonl in the run folder
	Out *string `koanf:"out"`
	// queries to answer; all = train and val of data.beams, eval = held out (dev)
	Split string `koanf:"split" enum:"train,val,eval,all"`
	// width of the beam search; 1 = greedy
	BeamSize int `koanf:"beam_size" range:"[1,10000]"`
}

func predictTask() job.Task {
	return job.Task{Run: predict, On: onData, Policy: true, Sections: []string{"data", "init"},
		Options: &PredictOptions{Split: "all", BeamSize: 1}, Validate: func(c *job.Config) error {
			if c.Text() != nil {
				return option.Errorf("task", "predict selects examples (policy=pointer): policy=%s answers with task=generate", c.Policy)
			}
			return option.Want(c.Init.Checkpoint != nil, "init.checkpoint",
				"task=predict needs a trained policy: init.checkpoint=RUN_FOLDER or a checkpoint file")
		}}
}

// prediction is a line of predictions.jsonl.
type prediction struct {
	QueryID    int64     `json:"query_id"`
	Pointer    []int64   `json:"pointer"`     // global ids, in order of choice
	PointerPos []int64   `json:"pointer_pos"` // positions in candidate_pool_ids
	LogProb    float64   `json:"logprob"`     // of the sequence, nats
	Scores     []float64 `json:"scores"`      // log-probability of each choice, nats
}

// predict runs task=predict: the best selection of every query of a split, in file order.
func predict(ctx context.Context, j *job.Job) error {
	opt := job.Own[PredictOptions](j.Config, "predict")
	j.Config.Data.QueriesOnly = true // what a file records about its queries must not matter
	bundle, err := workload.LoadData(j)
	if err != nil {
		return err
	}
	workload.TellSkipped(j)
	set := map[string]*beamdata.Set{"train": cmp.Or(bundle.RCE, bundle.Online), "val": bundle.Val, "eval": bundle.Eval,
		"all": bundle.All}[opt.Split]
	if set == nil || set.Len() == 0 {
		return usage.Errorf("predict.split=%s: data.name=%s has no such queries", opt.Split, bundle.Name)
	}
	path := option.Or(opt.Out, filepath.Join(j.Dir, "predictions.jsonl"))
	from, err := job.ResolveCheckpoint("init.checkpoint", *j.Config.Init.Checkpoint)
	if err != nil {
		return err
	}
	inputs := map[string]*string{"the checkpoint": &from}
	for _, file := range filesOf(j.Config) {
		inputs["what is read, "+file] = &file
	}
	if err := PrepareOut("predict.out", path, inputs, j.Config.DryRun); err != nil {
		return err
	}
	policy, err := workload.OpenPointer(j, bundle)
	if err != nil {
		return err
	}
	defer policy.Free()
	shots, err := workload.ShotsOf(policy, bundle)
	if err != nil {
		return err
	}
	if j.Config.DryRun {
		j.Logf("dry_run: everything loads and checks; nothing was predicted")
		return nil
	}
	j.Begun = true
	j.Holder.Heed()
	src := pointer.NewSource(set)
	batch := workload.EvalBatch(set)
	err = stream(path, func(encode func(any) error) error {
		for queries := range selector.Chunks(set.Len(), batch) {
			if err := ctx.Err(); err != nil {
				return err
			}
			lines, err := answer(policy, src, set, queries, shots, opt.BeamSize)
			for i := 0; i < len(lines) && err == nil; i++ {
				err = encode(lines[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	by := ""
	if job.Untrained(from) {
		by = ", by an untrained policy: the best of its run is the initial one"
	}
	stdout.Printf("predictions: %d queries, %d shots%s → %s\n", set.Len(), shots, by, path)
	return nil
}

// answer decodes one batch of queries.
func answer(policy *pointer.Policy, src *pointer.Source, set *beamdata.Set, queries []int, shots, width int) (lines []prediction,
	err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	b, scores := policy.Decode(src, queries, shots, width)
	best := selector.NewBatch(src, queries, 1, shots)
	for i := range queries {
		best.Set(i, 0, b.Scored(i, 0), 0)
	}
	steps := policy.Forward(best, selector.ForwardOptions{}).LogP.Floats()
	for i, q := range queries {
		pool := set.Pool(q)
		p := prediction{QueryID: set.IDs[q], LogProb: scores[i*width], Pointer: []int64{}, PointerPos: []int64{}, Scores: []float64{}}
		for t, at := range b.Chosen(i, 0) {
			p.PointerPos = append(p.PointerPos, int64(set.FilePosition(q, int32(at))))
			p.Pointer = append(p.Pointer, int64(pool[at]))
			p.Scores = append(p.Scores, steps[i*shots+t])
		}
		lines = append(lines, p)
	}
	return lines, nil
}
