package experiments

import (
	"fulcrum/internal/registry"
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/phases/rce"
	"fulcrum/selector"
)

// This file is the catalog: what can be named in a configuration, one line each.

// phaseMaker builds a phase from the configuration and what the policy's kind brings.
type phaseMaker func(c *Config, w workload) (phases.Phase, error)

// Phases returns the phases that schedule may name.
func Phases() *registry.Table[phaseMaker] {
	t := registry.New[phaseMaker]("phase")
	t.Add("sft", newSFT)
	t.Add("rce", newRCE)
	t.Add("grpo", newGRPO)
	t.Add("grpo_online", newGRPOOnline)
	return t
}

// Policies returns what policy may name.
func Policies() *registry.Table[workloadMaker] {
	t := registry.New[workloadMaker]("policy")
	t.Add("pointer", newPointerWork)
	t.Add("qwen2_5_vl", newVLWork)
	t.Add("seq2seq", newSeq2SeqWork)
	return t
}

// textModels returns the token policies, which tasks generate and score can open.
func textModels() *registry.Table[func(j *job) (textModel, error)] {
	t := registry.New[func(j *job) (textModel, error)]("token policy")
	t.Add("qwen2_5_vl", newVLText)
	t.Add("seq2seq", newSeq2SeqText)
	return t
}

// Tasks returns what task may name.
func Tasks() *registry.Table[taskFunc] {
	t := registry.New[taskFunc]("task")
	t.Add("train", train)
	t.Add("predict", predict)
	t.Add("evaluate", evaluate)
	t.Add("generate", generate)
	t.Add("score", score)
	return t
}

func newSFT(c *Config, w workload) (phases.Phase, error) {
	src, err := w.Beams("sft")
	return rce.NewSFT(c.SFT, c.Optim, c.LRSchedule, src, c.Data.BatchSize, c.Selector.Smoothing), err
}

func newRCE(c *Config, w workload) (phases.Phase, error) {
	from := w.Beams
	if c.RCE.Rollout == "online" {
		from = w.Online
	}
	src, err := from("rce")
	return rce.New(c.RCE, c.Optim, c.LRSchedule, src, c.Data.BatchSize, c.Selector.Smoothing), err
}

func newGRPO(c *Config, w workload) (phases.Phase, error) { return newGRPONamed("grpo", c.GRPO, c, w) }

func newGRPOOnline(c *Config, w workload) (phases.Phase, error) {
	return newGRPONamed("grpo_online", c.GRPOOnline, c, w)
}

func newGRPONamed(name string, opt grpo.Options, c *Config, w workload) (phases.Phase, error) {
	var src selector.Source
	var err error
	if opt.Rollout == "online" {
		src, err = w.Online(name)
	} else {
		src, err = w.Records(name)
	}
	return grpo.New(name, opt, c.Optim, c.LRSchedule, src, c.Data.BatchSize), err
}
