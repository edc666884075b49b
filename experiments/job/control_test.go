package job

import (
	"strings"
	"testing"
)

// A control that changes sampled rewards refuses phases that learn from recorded ones.
func TestControlWantsSamples(t *testing.T) {
	c := DefaultConfig(Entries{})
	c.Schedule, c.Control = []string{"rce", "grpo"}, "majority"
	err := c.validateControl()
	if err == nil || !strings.Contains(err.Error(), "phase rce learns from recorded candidates") {
		t.Errorf("majority on recorded groups: %v", err)
	}
	c.Schedule = []string{"grpo"}
	if c.GRPO.Rollout = "online"; c.validateControl() != nil {
		t.Errorf("majority on samples: %v", c.validateControl())
	}
	c.GRPO.Advantage.Method = "reference_rollout"
	if err := c.validateControl(); err == nil || !strings.Contains(err.Error(), "grpo.advantage.method") {
		t.Errorf("majority with a reference's reward as baseline: %v", err)
	}
	c.Control = "placebo_within"
	if err := c.validateControl(); err == nil || !strings.Contains(err.Error(), "grpo.advantage.method") {
		t.Errorf("a shuffled group over the reference's true reward: %v", err)
	}
	if c.GRPO.Rollout = "offline"; c.validateControl() == nil {
		t.Error("a shuffled recorded group over the reference's true reward passes")
	}
	if c.GRPO.Advantage.Method = "z_score"; c.validateControl() != nil {
		t.Errorf("placebo_within on recorded groups: %v", c.validateControl())
	}
	c.Control = "majority"
	c.Schedule, c.RCE.Rollout = []string{"rce"}, "enumerated"
	if err := c.validateControl(); err == nil || !strings.Contains(err.Error(), "rce.rollout") {
		t.Errorf("majority of all selections: %v", err)
	}
	c.Schedule, c.Control = []string{"rce", "grpo"}, "placebo"
	if err := c.validateControl(); err != nil {
		t.Errorf("placebo on recorded groups: %v", err)
	}
}

// A bound on a KL that a phase never measures is refused, by the key of that phase.
func TestBestWantsItsKL(t *testing.T) {
	c := DefaultConfig(Entries{})
	c.Schedule, c.GRPO.KL.Beta, c.GRPO.KL.Controller, c.GRPO.KL.MeasureEvery = []string{"rce", "grpo"}, 0, "fixed", 0
	if err := c.validateSchedule(); err != nil {
		t.Errorf("without a bound: %v", err)
	}
	c.Checkpoint.Best.KLMax = new(0.1)
	if err := c.validateSchedule(); err == nil || !strings.Contains(err.Error(), "grpo.kl.measure_every: 0 measures no KL") {
		t.Errorf("with a bound: %v", err)
	}
	if c.Schedule = []string{"rce"}; c.validateSchedule() != nil {
		t.Errorf("a phase that is not in the schedule: %v", c.validateSchedule())
	}
}
