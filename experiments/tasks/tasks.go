package tasks

import (
	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/experiments/workload"
	"fulcrum/internal/registry"
	"fulcrum/selector/clip"
)

// Tasks returns what task may name.
func Tasks() *registry.Table[job.Task] {
	t := registry.New[job.Task]("task")
	t.Add("train", trainTask())
	t.Add("predict", predictTask())
	t.Add("evaluate", evaluateTask())
	t.Add("generate", generateTask())
	t.Add("score", scoreTask())
	t.Add("beams", beamsTask())
	t.Add("embed", embedTask())
	t.Add("infer", inferTask())
	t.Add("icl", iclTask())
	return t
}

// Entries returns what tasks and policies bring to every configuration.
func Entries() job.Entries {
	return job.Entries{Tasks: Tasks(), Policies: workload.Traits(), Scores: workload.AsksModel, Shared: map[string]configs.Section{
		"lvlm":    {Options: new(lvlm.DefaultOptions()), Help: "the frozen vision-language model that scores and answers", Before: "sft"},
		"encoder": {Options: new(clip.DefaultOptions()), Help: "the model that makes embeddings of images and questions", Before: "report"},
	}}
}

// recordKeys are the keys of data that name records.
func recordKeys() []string { return []string{"data.name", "data.root", "data.records_icl"} }

// onData names the data, and says plainly when it is not real.
func onData(c *job.Config) string {
	if c.Data.Name == "shapes" {
		return "on synthetic shapes (not real images)"
	}
	return "on " + c.Data.Name
}

// Schema returns the type of every configuration: its task and its policy are names of the tables.
func Schema() (*configs.Schema, error) { return SchemaOf(job.DefaultConfig(Entries())) }

// SchemaOf returns the type of configurations with the defaults of c and the entries of its tables.
func SchemaOf(c *job.Config) (*configs.Schema, error) {
	s, err := configs.SchemaOf(c, map[string][]string{"task": c.Entries.Tasks.Names(), "policy": c.Entries.Policies.Names()})
	if err == nil {
		s.OwnedBy(newOwners(c.Entries))
	}
	return s, err
}
