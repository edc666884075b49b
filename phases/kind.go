package phases

import (
	"fulcrum/internal/option"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// Kind is a kind of phase. A section of its name is always there; users add others with kind: NAME.
type Kind struct {
	Name, Help string
	New        func() Options // with the defaults
}

// Options are a section that a schedule may name: the keys of a phase, and what is made of them.
type Options interface {
	// Build makes the phase that the schedule calls name.
	Build(name string, s Setup, d Sources) (Phase, error)
	// Traits says what the checks before training go by.
	Traits(s Setup) Traits
	// Shrink prepares the options for a trial: no group is filled with other queries, none has more than groupSize
	// sampled candidates.
	Shrink(groupSize int)
}

// Setup is what the phases of a run share.
type Setup struct {
	Optim      OptimOptions
	LRSchedule schedule.LROptions
	BatchSize  int
	Smoothing  float64                   // label smoothing of phases that imitate
	Normalize  func([]float64) []float64 // puts a group's rewards on a common scale (data.normalize)
}

// Sources is where phases get their queries from. phase names who asks, for the error when there are none.
type Sources interface {
	// Beams returns the recorded candidates that rce imitates.
	Beams(phase string) (selector.Source, error)
	// Demos returns those that sft imitates: demonstrations where the data has some, else Beams.
	Demos(phase string) (selector.Source, error)
	// Records returns the recorded groups of offline GRPO.
	Records(phase string) (selector.Source, error)
	// Online returns the queries of rollouts.
	Online(phase string) (selector.Source, error)
}

// Traits are what the checks before training go by.
type Traits struct {
	Epochs int      // 0: the phase is skipped
	Learns Learns   // which recorded data the audit looks at
	Freeze []string // parameters whose name contains one of these must not move
	// Credit returns what the first step multiplies log π of each candidate by in its objective [B*G], but for a common factor: the
	// preflight holds the step's gradient against it. nil: not known, and not checked.
	Credit func(b *selector.Batch, tau float64) []float64
	// SampleTemp is the temperature of draws from the policy itself; 0: from another distribution, or none, and not checked.
	SampleTemp float64
}

// Learns is what of the data a phase learns from.
type Learns int

// What a phase may learn from.
const (
	FromSamples Learns = iota // of the policy itself
	FromBest                  // the best recorded candidate
	FromRewards               // recorded candidates, weighted by their rewards
	FromGroups                // groups of recorded candidates, compared
)

// Training is what the section of every phase has.
type Training struct {
	// passes over the phase's queries; 0 skips the phase
	Epochs int `koanf:"epochs" range:"[0,inf)" also:"num_train_epochs,num_epochs,max_epochs,epoch"`
	// queries of an epoch, drawn anew each time (the first ones without data.shuffle); null = all
	EpochQueries *int `koanf:"epoch_queries" range:"[1,inf)"`
	// peak learning rate
	LR float64 `koanf:"lr" range:"(0,inf)" also:"learning_rate"`
	// queries in one forward and backward pass, to bound memory: their gradients add up to the step's; null = all at
	// once
	MicroBatch *int `koanf:"micro_batch" range:"[1,inf)"`
}

// ValidateShards refuses a micro_batch beside several shards, which bound the memory of a pass themselves.
func (t Training) ValidateShards(shards int) error {
	if shards > 1 && t.MicroBatch != nil {
		return option.Errorf("micro_batch", "want null with parallel.shards=%d: a pass has the queries of one shard", shards)
	}
	return nil
}
