package tasks

import (
	"context"
	"fulcrum/experiments/job"
	"fulcrum/internal/registry"
)

// Tasks returns what task may name.
func Tasks() *registry.Table[taskFunc] {
	t := registry.New[taskFunc]("task")
	t.Add("train", train)
	t.Add("predict", predict)
	t.Add("evaluate", evaluate)
	t.Add("generate", generate)
	t.Add("score", score)
	t.Add("beams", beams)
	t.Add("embed", embed)
	t.Add("infer", infer)
	t.Add("icl", iclLoop)
	return t
}

type taskFunc func(ctx context.Context, j *job.Job) error
