// Package phases trains a policy: the scheduler walks through phases (sft, rce, grpo), a phase turns a batch of grouped
// candidates into one optimizer step, and the end of every epoch saves what an exact resume needs.
//
//	err := phases.Run(ctx, plan, env)      // scheduler.go: the whole training loop
//
// It knows policies and data only through package selector, and writes metrics to a Recorder.
package phases

import (
	"context"
	"encoding/json"
	"fmt"

	"fulcrum/internal/ranks"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/rewardutil/advantage"
	"fulcrum/selector"
)

// Phase is one stage of the schedule. A phase owns its schedules and its optimizer; the scheduler owns
// epochs, validation, checkpoints and resume. The small interfaces below are optional powers of a phase.
type Phase interface {
	// Info describes the phase to the scheduler.
	Info() Info
	// Begin prepares the phase for env.Policy: its optimizer, its frozen policies.
	Begin(env *Env, totalSteps int) error
	// Step makes one optimizer step and returns its numbers.
	Step(ctx context.Context, at At) (Measured, error)
	// State returns what a resume needs beyond the weights.
	State() PhaseState
	// Restore is called after Begin with what State returned, joined over the processes.
	Restore(PhaseState) error
	// End releases what Begin made.
	End()
}

type Info struct {
	Name         string // in the schedule, the metrics and the checkpoints
	Epochs       int    // 0 skips it
	Source       selector.Source
	BatchSize    int  // queries in a step
	Passes       int  // optimizer steps on each batch
	EpochQueries *int // queries of an epoch, a new draw each time where the order is shuffled; nil: all
	Online       bool // candidates are sampled from the policy, or enumerated: none is recorded
}

// EpochFollower is a Phase that acts at the start and the end of its epochs.
type EpochFollower interface {
	// BeginEpoch refreshes the policies that are copied at the start of an epoch (old and reference).
	BeginEpoch(epoch int)
	// EndEpoch adapts values that move by the epoch (the KL coefficient) and returns further metrics, or nil.
	EndEpoch() Measured
}

func BeginEpoch(p Phase, epoch int) {
	if f, ok := p.(EpochFollower); ok {
		f.BeginEpoch(epoch)
	}
}

// EndEpoch tells a phase that an epoch has ended and returns the metrics that it adds.
func EndEpoch(p Phase) Metrics {
	if f, ok := p.(EpochFollower); ok {
		if m := f.EndEpoch(); m != nil {
			return m.Row()
		}
	}
	return nil
}

// Referrer is a Phase whose KL is measured against a policy other than the run's initial one.
type Referrer interface {
	// Reference returns that policy and its name in metrics.jsonl; nil: the KL is not measured.
	Reference() (selector.Policy, string)
}

// ReferenceOf returns the policy that a phase's val_kl is measured against, and its name.
func ReferenceOf(p Phase, env *Env) (selector.Policy, string) {
	if r, ok := p.(Referrer); ok {
		return r.Reference()
	}
	return env.Initial, initReference
}

// Names of references: the run's initial policy, and the one that a phase began with.
const (
	initReference       = "init"
	phaseStartReference = "phase_start"
)

// Preparer is a Phase that works before an epoch, after Begin and Restore. Prepare gets the epoch's queries; a resume first goes through
// the epochs before. It may take as long as an epoch and ends early when ctx does.
type Preparer interface {
	Prepare(ctx context.Context, queries []int) error
}

// Checker is a Phase that can tell, before anything is trained, which errors Begin would return.
type Checker interface {
	// Check makes the checks of Begin and changes nothing. The first phase of a schedule may train for hours before
	// the second begins.
	Check(env *Env) error
}

// Expecter is a Phase whose options limit its rows.
type Expecter interface {
	// Expected returns the limits that the doctor compares the rows with; the scheduler adds the numbers of steps.
	Expected() doctor.Limits
}

// Check calls every Checker of a plan and returns the first error.
func Check(plan Plan, env *Env) error {
	for _, p := range plan.Phases {
		if c, ok := p.(Checker); ok {
			if err := c.Check(env); err != nil {
				return fmt.Errorf("%s: %w", p.Info().Name, err)
			}
		}
	}
	return nil
}

// PhaseState is a phase's part of a saved state: a JSON value, the optimizer's moments and the weights
// of the frozen policies that no checkpoint file holds.
type PhaseState struct {
	Values         json.RawMessage
	M, V           []float32
	OptimizerSteps int
	Frozen         map[string][]float32 // flat weights of old and reference policies by role
}

// RestorePolicy gives a frozen policy the weights that the state has of it.
func (s PhaseState) RestorePolicy(role string, p selector.Policy) error {
	if w, want := s.Frozen[role], p.Params().Numel(); len(w) != want {
		return fmt.Errorf("the saved %s policy has %d weights, want %d", role, len(w), want)
	}
	p.Params().SetValues(s.Frozen[role])
	return nil
}

// Recorder receives what a run reports. It is implemented by package reports.
type Recorder interface {
	// Record appends one row to the run's metrics: kind is step, epoch, eval or event.
	Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error
	// Scores keeps the per-query scores of a policy on a split, for paired comparisons.
	Scores(s Scores) error
	// Completions keeps sampled candidates of one step (counted from 1 within the phase), to be read by people.
	Completions(phase string, epoch, step int, rows []Completion) error
	// Mark makes everything recorded so far durable and returns the number of rows of each kind, by which a
	// saved state cuts off later rows.
	Mark() (rows, evals, completions int, err error)
}

// Scores are a policy's scores on every query of a split.
type Scores struct {
	Split, Policy, Phase string
	Epoch                int
	Metric               string // reward or accuracy
	Shots                int
	QueryIDs             []int64   // [Q]
	Values               []float64 // [Q]
	// ChosenFrom is the number of checkpoints among which the policy was chosen on these very queries; 0: it was not
	// chosen on them.
	ChosenFrom int
}

// Completion is one sampled text of a group, with its reward.
type Completion struct {
	QueryID   int64
	Group     int // number in its group, from 0
	Text      string
	Tokens    []int64 // as the policy scored them, the end token included
	Truncated bool    // cut at the length limit
	Reward    float64
	Terms     map[string]float64 // the reward's parts, before their weights
	Advantage float64            // over its whole group
}

// Env is shared by the phases of a run.
type Env struct {
	Policy  selector.Policy
	Initial selector.Policy // a frozen copy of the policy that the run started from
	// AllowNonFinite trains and saves on after NaN and infinity.
	AllowNonFinite bool
	// Gradients sees the gradients of every step and may change them; may be nil.
	Gradients GradientHook
	// WithHeads returns a copy of a policy whose attention is read with another number of heads; nil: policies have none to
	// choose.
	WithHeads func(p selector.Policy, heads int) (selector.Policy, error)
	Data      Data
	Seed      int64
	// Shards is the number of shards of whole groups that a step is cut into; 0 is 1. Ranks are the processes that share them, at most as
	// many; nil: this one computes all. Rank 0 alone writes, judges and looks at files.
	Shards    int
	Ranks     *ranks.Group
	Peers     torchx.Peers // by which Ranks exchange tensors
	Backwards bool         // this process computes its shards in the other order
	// LookAhead makes Steps work ahead even without CUDA graphs. It gains nothing: a test checks that no number changes.
	LookAhead bool
	Rec       Recorder
	Dir       string // run folder; checkpoints go to Dir/checkpoints
	// Baselines are the mean validation rewards of rules that learn nothing, by name; Untrained says that Initial has learnt nothing, Placebo
	// that rewards of training belong to other queries. The doctor asks for all three.
	Baselines          map[string]float64
	Untrained, Placebo bool
	// ConfigHash stands in every checkpoint, so that a resume under another configuration is refused.
	ConfigHash string
	// DataHash stands in every state, so that a resume with other data is refused.
	DataHash string
	// Look is called before a state is saved and at the end. It returns the digests of the files that the run reads, by name, for the
	// state. An error: such a file has changed, and the numbers since the last state cannot be relied on. May be nil.
	Look func() (inputs []string, err error)
	// Export is told of every checkpoint of a phase once it is saved, with the epoch's metrics: it may write
	// the weights in another format too (checkpoint.format=pt). May be nil.
	Export func(checkpoint, phase string, epoch int, metrics map[string]any) error
	// Judge is told of every epoch, counted over all phases from 1, with its metrics and the one that decides
	// which checkpoint is best. If it returns a reason, the run ends after this epoch and counts as finished. May be nil.
	Judge func(epoch int, m Metrics, best string, minimize bool) (reason string, err error)

	remark   string // a phase's note for the run's log, written once
	inFlight bool   // the next step is launched already
}

// Data is what a run trains and validates on.
type Data struct {
	Val   selector.Source // validation queries; chooses the best checkpoint
	Eval  selector.Source // held-out queries that enter no choice; may be nil
	Train selector.Source // training queries that are evaluated beside them, as split train; may be nil
	Shots int             // S, the number of examples to select; of token policies, the most tokens of a completion
	// ShotsKey is the configuration key that says so, for advice.
	ShotsKey string

	// EvalBatch is the number of queries in a validation pass; 0 = 128. The last bits of a matrix
	// product depend on its shape, so it is part of what makes runs equal.
	EvalBatch int

	EvalName string // the held-out split's name in metrics
	Shuffle  bool
	// Normalize puts a group's raw rewards on a common scale (data.normalize), for RCE's weights.
	Normalize func(rewards []float64) []float64
	// ValLoss says how val_loss is computed: the same for all epochs and phases, so that they compare.
	ValLoss ValLoss
	// Advantage is how val_advantage is computed.
	Advantage advantage.Options
}

// ValLoss configures val_loss, the reward-weighted cross entropy of recorded candidates.
type ValLoss struct {
	Temperature float64 // τ of the weights
	Relative    bool    // τ counts in deviations of the group
	Raw         bool    // weights of raw rewards, not of those that Data.Normalize gives
	Smoothing   float64 // label smoothing
	PerToken    bool    // mean over scored steps, each weighted as its candidate, as in average=token
	// Mean averages the losses of the queries; nil: their mean. It is not asked with PerToken.
	Mean func([]float64) float64
}
