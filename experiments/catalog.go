package experiments

import (
	"fulcrum/internal/registry"
	"fulcrum/phases"
	"fulcrum/selector/pointer"
)

// This file is the catalog: what can be named in a configuration, one line each.

// phaseMaker builds a phase from the configuration and the run's data.
type phaseMaker func(c *Config, d *trainData) (phases.Phase, error)

// Phases returns the phases that schedule may name.
func Phases() *registry.Table[phaseMaker] {
	t := registry.New[phaseMaker]("phase")
	t.Add("sft", newSFT)
	t.Add("rce", newRCE)
	t.Add("grpo", newGRPO)
	t.Add("grpo_online", newGRPOOnline)
	return t
}

// Tasks returns what task may name.
func Tasks() *registry.Table[taskFunc] {
	t := registry.New[taskFunc]("task")
	t.Add("train", train)
	t.Add("predict", predict)
	t.Add("evaluate", evaluate)
	return t
}

func newSFT(c *Config, d *trainData) (phases.Phase, error) {
	src, err := d.beams("sft")
	return phases.NewSFT(c.SFT, c.Optim, c.LRSchedule, src, c.Data.BatchSize, c.Selector.Smoothing), err
}

func newRCE(c *Config, d *trainData) (phases.Phase, error) {
	src, err := d.beams("rce")
	if c.RCE.Rollout == "online" {
		src, err = d.online("rce")
	}
	return phases.NewRCE(c.RCE, c.Optim, c.LRSchedule, src, c.Data.BatchSize, c.Selector.Smoothing), err
}

func newGRPO(c *Config, d *trainData) (phases.Phase, error) { return grpo("grpo", c.GRPO, c, d) }

func newGRPOOnline(c *Config, d *trainData) (phases.Phase, error) {
	return grpo("grpo_online", c.GRPOOnline, c, d)
}

func grpo(name string, opt phases.GRPOOptions, c *Config, d *trainData) (phases.Phase, error) {
	var src *pointer.Source
	var err error
	if opt.Rollout == "online" {
		src, err = d.online(name)
	} else {
		src, err = d.records(name)
	}
	return phases.NewGRPO(name, opt, c.Optim, c.LRSchedule, src, c.Data.BatchSize), err
}
