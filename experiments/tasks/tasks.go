package tasks

import (
	"context"
	"fmt"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/registry"
)

// Task is a value of task: what a run does.
type Task struct {
	Run func(ctx context.Context, j *job.Job) error
	// On is what the first line of output says that the task works on.
	On func(c *job.Config) string
	// Saves says that an interrupted run keeps what it has done, for a resume.
	Saves bool
}

// Tasks returns what task may name.
func Tasks() *registry.Table[Task] {
	t := registry.New[Task]("task")
	t.Add("train", Task{Run: train, On: onData, Saves: true})
	t.Add("predict", Task{Run: predict, On: onData})
	t.Add("evaluate", Task{Run: evaluate, On: func(c *job.Config) string { return c.Evaluate.Judged() }})
	t.Add("generate", Task{Run: generate, On: func(c *job.Config) string { return *c.Generate.In }})
	t.Add("score", Task{Run: score, On: func(c *job.Config) string { return *c.Score.In }})
	t.Add("beams", Task{Run: beams, On: func(c *job.Config) string { return "by " + c.Beams.Score }, Saves: true})
	t.Add("embed", Task{Run: embed, Saves: true,
		On: func(c *job.Config) string { return c.Embed.Modality + " by " + *c.Encoder.Path }})
	t.Add("infer", Task{Run: infer, On: func(c *job.Config) string { return fmt.Sprintf("%s, %d shots", c.Infer.Method, c.Infer.Shots) }})
	t.Add("icl", Task{Run: iclLoop, Saves: true, On: func(c *job.Config) string {
		if in := c.Data.RecordsICL; in != nil {
			return "on " + *in
		}
		return onData(c)
	}})
	return t
}

// onData names the data, and says plainly when it is not real.
func onData(c *job.Config) string {
	if c.Data.Name == "shapes" {
		return "on synthetic shapes (not real images)"
	}
	return "on " + c.Data.Name
}

// Schema returns the type of every configuration: its task and its policy are names of the tables.
func Schema() (*configs.Schema, error) {
	return configs.SchemaOf(job.DefaultConfig(), map[string][]string{"task": Tasks().Names(), "policy": workload.Policies().Names()})
}
