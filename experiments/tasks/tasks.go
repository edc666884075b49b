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

	// What has an effect in such a run, beside report, logging and on_end. Keys of other sections do nothing, and are refused on the
	// command line.
	Sections []string // are validated as a whole
	Reads    []string // sections, or single keys of others
	Policy   bool     // the section of the policy
	Trains   bool     // the phases of the schedule, and what the policy reads to train
	Stages   []string // tasks that are run with this one's configuration
}

// Tasks returns what task may name.
func Tasks() *registry.Table[Task] {
	t := registry.New[Task]("task")
	// validation compares losses and advantages as rce, sft and grpo would have them, whatever the schedule
	t.Add("train", Task{Run: train, On: onData, Saves: true, Policy: true, Trains: true,
		Sections: []string{"data", "init", "optim", "lr_schedule", "checkpoint", "doctor", "preflight", "eval"},
		Reads:    []string{"rce.temperature", "rce.rewards", "rce.average", "sft.average", "grpo.advantage"}})
	t.Add("predict", Task{Run: predict, On: onData, Policy: true, Sections: []string{"data", "init", "predict"}})
	t.Add("evaluate", Task{Run: evaluate, On: func(c *job.Config) string { return c.Evaluate.Judged() },
		Sections: []string{"evaluate", "eval"}})
	t.Add("generate", Task{Run: generate, On: func(c *job.Config) string { return *c.Generate.In }, Policy: true,
		Sections: []string{"generate", "init"}})
	t.Add("score", Task{Run: score, On: func(c *job.Config) string { return *c.Score.In }, Policy: true, Sections: []string{"score", "init"}})
	records := []string{"data.name", "data.root", "data.records_icl"}
	t.Add("beams", Task{Run: beams, On: func(c *job.Config) string { return "by " + c.Beams.Score }, Saves: true,
		Sections: []string{"beams", "lvlm"}, Reads: append(records, "data.embeddings")})
	t.Add("embed", Task{Run: embed, Saves: true, Sections: []string{"embed", "encoder"}, Reads: records,
		On: func(c *job.Config) string { return c.Embed.Modality + " by " + *c.Encoder.Path }})
	t.Add("infer", Task{Run: infer, On: func(c *job.Config) string { return fmt.Sprintf("%s, %d shots", c.Infer.Method, c.Infer.Shots) },
		Sections: []string{"infer", "lvlm"}, Reads: append(records, "data.embeddings")})
	t.Add("icl", Task{Run: iclLoop, Saves: true, Sections: []string{"icl", "beams", "lvlm"}, Reads: []string{"data"},
		Stages: []string{"embed", "beams", "infer", "train", "predict"}, On: func(c *job.Config) string {
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
	s, err := configs.SchemaOf(job.DefaultConfig(), map[string][]string{"task": Tasks().Names(), "policy": workload.Policies().Names()})
	if err == nil {
		s.OwnedBy(newOwners())
	}
	return s, err
}
