//go:build !core

package tasks

import (
	"fulcrum/beamdata/iclshapes"
	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/experiments/workload"
	"fulcrum/selector/clip"
)

// Frozen brings the loop around a frozen model: the tasks beams, embed, infer and icl, their sections, and rewards by the model.
func Frozen(e *job.Entries) {
	e.Tasks.Add("beams", beamsTask())
	e.Tasks.Add("embed", embedTask())
	e.Tasks.Add("infer", inferTask())
	e.Tasks.Add("icl", iclTask())
	e.Shared["lvlm"] = configs.Section{Options: new(lvlm.DefaultOptions()), Before: "sft",
		Help: "the frozen vision-language model that scores and answers"}
	e.Shared["encoder"] = configs.Section{Options: new(clip.DefaultOptions()), Before: "report",
		Help: "the model that makes embeddings of images and questions"}
	e.Data = append(e.Data, iclshapes.Data())
	e.Frozen = workload.Frozen()
	e.Policies.Change("pointer", func(p *job.Policy) {
		p.Trains = append(p.Trains, "lvlm")
		p.Needs["lvlm"], p.Needs["lvlm.reward"] = "lvlm.reward", "data.records_icl"
	})
}

// recordKeys are the keys of data that name records.
func recordKeys() []string { return []string{"data.name", "data.root", "data.records_icl"} }
