package tasks

import (
	"slices"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/registry"
)

// Tasks returns what task may name.
func Tasks() *registry.Table[job.Task] {
	t := registry.New[job.Task]("task")
	t.Add("train", trainTask())
	t.Add("predict", predictTask())
	t.Add("evaluate", evaluateTask())
	t.Add("generate", generateTask())
	t.Add("score", scoreTask())
	return t
}

// Bring adds what an annex brings to the entries: tasks, sections, what a frozen model does.
type Bring func(e *job.Entries)

// Entries returns what tasks and policies bring to every configuration, those of annexes among them.
func Entries(more ...Bring) job.Entries {
	e := job.Entries{Tasks: Tasks(), Policies: workload.Traits(), Shared: map[string]configs.Section{}}
	for _, bring := range more {
		bring(&e)
	}
	return e
}

// onData names the data, and says plainly when it is not real.
func onData(c *job.Config) string {
	if c.Data.Name == "shapes" {
		return "on synthetic shapes (not real images)"
	}
	return "on " + c.Data.Name
}

// Schema returns the type of every configuration: its task and its policy are names of the tables.
func Schema(more ...Bring) (*configs.Schema, error) {
	return SchemaOf(job.DefaultConfig(Entries(more...)))
}

// SchemaOf returns the type of configurations with the defaults of c and the entries of its tables.
func SchemaOf(c *job.Config) (*configs.Schema, error) {
	s, err := configs.SchemaOf(c, map[string][]string{"task": c.Entries.Tasks.Names(), "policy": c.Entries.Policies.Names(),
		"data.name": beamdata.Names(c.Data.Datasets())})
	if err == nil {
		s.OwnedBy(newOwners(c.Entries))
		s.Lacks(lacking(c.Entries.Tasks.Names()))
		s.Foreign(foreign())
	}
	return s, err
}

// foreign are keys of other trainers that have no counterpart, and what is done instead.
func foreign() map[string]string {
	const device = "a run has one device: less memory is taken with adapters (vl.lora.rank), vl.dtype=bfloat16, " +
		"vl.gradient_checkpointing=true and grpo.micro_batch"
	const server = "completions are sampled in the program; a server is for the frozen model alone, lvlm.backend=vllm lvlm.url=ADDRESS"
	const beams = "texts are decoded greedily or sampled; the beams of demonstrations are searched with task=beams beams.width=N"
	return map[string]string{"deepspeed": device, "fsdp": device, "use_vllm": server, "vllm_mode": server, "num_beams": beams}
}

// lacking names the annex of the tasks that the table has not, of their sections and of the data that comes with them.
func lacking(there []string) map[string]string {
	const frozen = "the loop around a frozen model"
	out := map[string]string{}
	for _, name := range []string{"beams", "embed", "infer", "icl"} {
		if !slices.Contains(there, name) {
			for _, what := range []string{"task=" + name, name, "lvlm", "encoder", "data.name=icl_shapes"} {
				out[what] = frozen
			}
		}
	}
	return out
}
