package tasks

import (
	"context"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
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

// Schema returns the type of every configuration: its task and its policy are names of the tables.
func Schema() (*configs.Schema, error) {
	return configs.SchemaOf(job.DefaultConfig(), map[string][]string{"task": Tasks().Names(), "policy": workload.Policies().Names()})
}

type taskFunc func(ctx context.Context, j *job.Job) error
