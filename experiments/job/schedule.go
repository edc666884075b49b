package job

import (
	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/phases/rce"
	"fulcrum/selector"
)

// Sources is where phases get their queries from. phase names who asks, for the error when there are none.
type Sources interface {
	// Beams returns the recorded candidates that sft and rce imitate.
	Beams(phase string) (selector.Source, error)
	// Records returns the recorded groups of offline GRPO.
	Records(phase string) (selector.Source, error)
	// Online returns the queries of rollouts.
	Online(phase string) (selector.Source, error)
}

// phaseMaker builds a phase from the configuration and what the policy's kind brings.
type phaseMaker func(c *Config, d Sources) (phases.Phase, error)

// Phases returns the phases that schedule may name.
func Phases() *registry.Table[phaseMaker] {
	t := registry.New[phaseMaker]("phase")
	t.Add("sft", newSFT)
	t.Add("rce", newRCE)
	t.Add("grpo", newGRPO)
	t.Add("grpo_online", newGRPOOnline)
	return t
}

func newSFT(c *Config, d Sources) (phases.Phase, error) {
	src, err := d.Beams("sft")
	return rce.NewSFT(c.SFT, c.Optim, c.LRSchedule, src, c.Data.BatchSize, c.Selector.Smoothing), err
}

func newRCE(c *Config, d Sources) (phases.Phase, error) {
	from := d.Beams
	if c.RCE.Rollout == "online" {
		from = d.Online
	}
	src, err := from("rce")
	return rce.New(c.RCE, c.Optim, c.LRSchedule, src, c.Data.BatchSize, c.Selector.Smoothing), err
}

func newGRPO(c *Config, d Sources) (phases.Phase, error) { return newGRPONamed("grpo", c.GRPO, c, d) }

func newGRPOOnline(c *Config, d Sources) (phases.Phase, error) {
	return newGRPONamed("grpo_online", c.GRPOOnline, c, d)
}

func newGRPONamed(name string, opt grpo.Options, c *Config, d Sources) (phases.Phase, error) {
	var src selector.Source
	var err error
	if opt.Rollout == "online" {
		src, err = d.Online(name)
	} else {
		src, err = d.Records(name)
	}
	return grpo.New(name, opt, c.Optim, c.LRSchedule, src, c.Data.BatchSize), err
}

// PlanOf makes the phases of the schedule that have epochs.
func PlanOf(c *Config, d Sources) (phases.Plan, error) {
	plan := phases.Plan{Checkpoint: c.Checkpoint, Doctor: c.Doctor}
	for _, name := range c.Schedule {
		make, err := Phases().Get(name)
		if err != nil {
			return plan, err
		}
		phase, err := make(c, d)
		if err != nil {
			return plan, err
		}
		if phase.Epochs() > 0 {
			plan.Phases = append(plan.Phases, phase)
		}
	}
	if len(plan.Phases) == 0 {
		return plan, usage.Errorf("schedule=%v: no phase has epochs: want at least one, such as %s.epochs=1", c.Schedule, append(c.Schedule, "rce")[0])
	}
	return plan, nil
}
