package job

import (
	"maps"
	"math"
	"reflect"
	"slices"

	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/selector"
)

// Sources is where phases get their queries from. phase names who asks, for the error when there are none.
type Sources interface {
	// Beams returns the recorded candidates that rce imitates.
	Beams(phase string) (selector.Source, error)
	// Demos returns the candidates that sft imitates: demonstrations where the data has some, else Beams.
	Demos(phase string) (selector.Source, error)
	// Records returns the recorded groups of offline GRPO.
	Records(phase string) (selector.Source, error)
	// Online returns the queries of rollouts.
	Online(phase string) (selector.Source, error)
}

// Phase is the section of a phase, an entry of schedule: its options and the phase built from them. To add a kind, write a type
// with its options and these methods, and one line in PhaseKinds.
type Phase interface {
	// Build makes the phase that the schedule calls name.
	Build(name string, c *Config, d Sources) (phases.Phase, error)
	// Traits tells the checks before training about the phase.
	Traits(c *Config) Traits
	// Shrink prepares the options for a trial: no group is filled with other queries, none has more than groupSize
	// sampled candidates.
	Shrink(groupSize int)
}

// tokenPhase is a Phase that does not suit every token policy.
type tokenPhase interface{ ValidateTokens() error }

// Traits tell the checks before training about a phase.
type Traits struct {
	Epochs int      // 0: the phase is skipped
	Learns Learns   // which recorded data the audit looks at
	Freeze []string // parameters whose name contains one of these must not move
	// Credit returns the factor of each candidate's log π in the objective of the first step [B*G], up to a common factor: the
	// preflight compares the step's gradient with it. nil: not known, and not checked.
	Credit func(b *selector.Batch, tau float64) []float64
	// SampleTemp is the temperature of draws from the policy itself; 0: from another distribution (top_p), not checked.
	SampleTemp float64
}

// Learns names the part of the data that a phase learns from.
type Learns int

// The parts of the data that a phase may learn from.
const (
	FromSamples Learns = iota // of the policy itself
	FromBest                  // the best recorded candidate
	FromRewards               // recorded candidates, weighted by their rewards
	FromGroups                // groups of recorded candidates, compared
)

// PhaseKind is a kind of phase. The section of its name is always there; others may be of its kind too.
type PhaseKind struct {
	Name, Help string
	New        func() Phase // with the defaults
}

// PhaseKinds returns the kinds of phases.
func PhaseKinds() []PhaseKind {
	return []PhaseKind{
		{"sft", "supervised fine-tuning on the best recorded beam", func() Phase { return NewSFT() }},
		{"rce", "reward-weighted cross entropy on recorded beams", func() Phase { return NewRCE() }},
		{"grpo", "group-relative policy optimisation", func() Phase { return NewGRPO() }},
	}
}

// Phases returns the phases that c's schedule may name: the sections whose options are a Phase.
func (c *Config) Phases() *registry.Table[Phase] {
	t := registry.New[Phase]("phase")
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if p, ok := v.Field(i).Addr().Interface().(Phase); ok {
			t.Add(v.Type().Field(i).Tag.Get("koanf"), p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sections)) {
		if p, ok := c.Sections[name].Options.(Phase); ok {
			t.Add(name, p)
		}
	}
	return t
}

// planned returns the phases of the schedule that have epochs, by name. Names without a phase are left out.
func (c *Config) planned() map[string]Phase {
	out, table := map[string]Phase{}, c.Phases()
	for _, name := range c.Schedule {
		if p, err := table.Get(name); err == nil && p.Traits(c).Epochs > 0 {
			out[name] = p
		}
	}
	return out
}

// Learns reports whether a phase of the schedule learns from one of the recorded kinds.
func (c *Config) Learns(from ...Learns) bool {
	for _, p := range c.planned() {
		for _, kind := range from {
			if p.Traits(c).Learns == kind {
				return true
			}
		}
	}
	return false
}

// sampleTemp returns the temperature at which the policy's samples are draws from itself; 0 where they leave tokens out.
func (c *Config) sampleTemp(temperature float64) float64 {
	if text := c.Text(); text != nil {
		if draws := text.Generation; draws.TopP < 1 || draws.TopK > 0 || draws.RepetitionPenalty != 1 {
			return 0
		}
	}
	return temperature
}

// ForTrial returns a copy of c whose phases are cheap to try, without weight decay. groupSize 0 leaves the sizes of
// groups as they are.
func (c *Config) ForTrial(groupSize int) *Config {
	trial := c.Copy()
	trial.Optim.WeightDecay = 0
	if groupSize == 0 {
		groupSize = math.MaxInt
	}
	table := trial.Phases()
	for _, name := range table.Names() {
		if p, err := table.Get(name); err == nil {
			p.Shrink(groupSize)
		}
	}
	return trial
}

// BuildPhase makes the phase of a section.
func (c *Config) BuildPhase(name string, d Sources) (phases.Phase, error) {
	p, err := c.Phases().Get(name)
	if err != nil {
		return nil, err
	}
	return p.Build(name, c, d)
}

// PlanOf makes the phases of the schedule that have epochs.
func PlanOf(c *Config, d Sources) (phases.Plan, error) {
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
	if len(c.Schedule) == 0 {
		return plan, usage.Errorf("schedule=[]: want at least one phase, as in schedule=[rce,grpo]")
	}
	if len(plan.Phases) == 0 {
		return plan, usage.Errorf("schedule=%v: no phase has epochs: want at least one, such as %s.epochs=1", c.Schedule,
			append(c.Schedule, "rce")[0])
	}
	return plan, nil
}
