package job

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"

	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/group"
)

// PhaseKinds returns the kinds of phases, those of annexes behind ours. To add one, write a file with its options and its phase, and one
// line here.
func PhaseKinds(more ...phases.Kind) []phases.Kind {
	return append([]phases.Kind{
		rce.SFTKind(),
		rce.Kind(),
		grpo.Kind(),
	}, more...)
}

func (c *Config) setup() phases.Setup {
	return phases.Setup{Optim: c.Optim, LRSchedule: c.LRSchedule, BatchSize: c.Data.BatchSize, Smoothing: c.Smoothing(),
		Normalize: func(r []float64) []float64 { return group.Normalize(r, c.Data.Normalize) }}
}

// Traits returns what the checks before training go by for a phase.
func (c *Config) Traits(p phases.Options) phases.Traits {
	t := p.Traits(c.setup())
	if text := c.Text(); text != nil {
		if draws := text.Generation; draws.TopP < 1 || draws.TopK > 0 || draws.RepetitionPenalty != 1 {
			t.SampleTemp = 0 // samples leave tokens out: they are from another distribution
		}
	}
	return t
}

// Phases returns the phases that c's schedule may name: the sections that are one.
func (c *Config) Phases() *registry.Table[phases.Options] {
	t := registry.New[phases.Options]("phase")
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if p, ok := v.Field(i).Addr().Interface().(phases.Options); ok {
			t.Add(v.Type().Field(i).Tag.Get("koanf"), p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sections)) {
		if p, ok := c.Sections[name].Options.(phases.Options); ok {
			t.Add(name, p)
		}
	}
	return t
}

// planned returns the phases of the schedule that have epochs, by name. Names without a phase are left out.
func (c *Config) planned() map[string]phases.Options {
	out, table := map[string]phases.Options{}, c.Phases()
	for _, name := range c.Schedule {
		if p, err := table.Get(name); err == nil && c.Traits(p).Epochs > 0 {
			out[name] = p
		}
	}
	return out
}

// Learns reports whether a phase of the schedule learns from one of the recorded kinds.
func (c *Config) Learns(from ...phases.Learns) bool {
	for _, p := range c.planned() {
		if slices.Contains(from, c.Traits(p).Learns) {
			return true
		}
	}
	return false
}

// ForTrial returns a copy of c whose phases are cheap to try, without weight decay. groupSize 0 leaves the sizes of
// groups as they are.
func (c *Config) ForTrial(groupSize int) *Config {
	trial := c.Copy()
	trial.Optim.WeightDecay = 0
	groupSize = cmp.Or(groupSize, math.MaxInt)
	table := trial.Phases()
	for _, name := range table.Names() {
		if p, err := table.Get(name); err == nil {
			p.Shrink(groupSize)
		}
	}
	return trial
}

// BuildPhase makes the phase of a section.
func (c *Config) BuildPhase(name string, d phases.Sources) (phases.Phase, error) {
	p, err := c.Phases().Get(name)
	if err != nil {
		return nil, err
	}
	return p.Build(name, c.setup(), d)
}

// PlanOf makes the phases of the schedule that have epochs. Without any a run scores the checkpoint that it starts from, so it needs one.
func PlanOf(c *Config, d phases.Sources) (phases.Plan, error) {
	plan := phases.Plan{Checkpoint: c.Checkpoint, Doctor: c.Checks.Rows()}
	for _, name := range c.Schedule {
		phase, err := c.BuildPhase(name, d)
		if err != nil {
			return plan, err
		}
		if phase.Info().Epochs > 0 {
			plan.Phases = append(plan.Phases, phase)
		}
	}
	switch {
	case len(plan.Phases) > 0:
	case len(c.Schedule) > 0:
		return plan, usage.Errorf("schedule=%v: no phase has epochs: want at least one, such as %s.epochs=1", c.Schedule, c.Schedule[0])
	case c.Init.Checkpoint == nil:
		return plan, usage.Errorf("schedule=[]: want at least one phase, as in schedule=[rce,grpo], or an init.checkpoint to score")
	}
	return plan, nil
}
