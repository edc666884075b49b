package job

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/internal/registry"
	"fulcrum/phases"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
	"fulcrum/selector/tokens"
)

// Entries are the tasks and policies that a configuration may name, with their sections.
type Entries struct {
	Tasks    *registry.Table[Task]
	Policies *registry.Table[Policy]
	Shared   map[string]configs.Section // sections that several entries read
	Data     []beamdata.Dataset         // values of data.name behind beamdata.Datasets
	Phases   []phases.Kind              // kinds of phases behind PhaseKinds
	Frozen   Frozen
	// Reference makes a run reproduce the Python reference; its zero value: not built in.
	Reference Reference
}

// Frozen gives training a frozen model; its zero value: not built in.
type Frozen struct {
	// Score names the score that the model gives to new selections; "": it gives none.
	Score func(c *Config) string
	// Ask returns the scorer of a set's selections; nil: there is none.
	Ask func(ctx context.Context, j *Job, b *beamdata.Bundle) (func(*beamdata.Set) pointer.Ask, error)
	// Embed returns the function that opens the model for the rows of a table (selector.clip).
	Embed func(j *Job, table *beamdata.Table) func(pointer.ClipOptions) (pointer.Embedder, error)
}

// Reference holds the Python reference's behaviour that no key selects.
type Reference struct {
	Reproduce func(c *Config, format string)       // once the format of the beams is known
	Freeze    func(names, parts []string) []string // the parameters that it freezes with grpo.freeze
	Gradients func(c *Config) phases.GradientHook  // nil where it freezes nothing
	Normalize func(o group.NormalizeOptions) func([]float64) []float64
	ValLoss   func(c *Config) phases.ValLoss
}

// FrozenScore names the score that a frozen model gives to new selections; "": no model does.
func (c *Config) FrozenScore() string {
	if score := c.Entries.Frozen.Score; score != nil {
		return score(c)
	}
	return ""
}

// RewardRange returns the least and the greatest reward that the formula can give to what a policy selects or writes; ok is false where
// the configuration does not decide it. A reader gives the mean of expected accuracies, a model's reward is a probability or an accuracy.
func (c *Config) RewardRange() (least, greatest float64, ok bool) {
	switch score := c.FrozenScore(); {
	case c.Text() != nil:
		return c.Rewards.Range()
	case score == "cider":
		least, greatest = record.ScoreRange(score)
		return least, greatest, true
	default:
		return 0, 1, c.Data.Name != "beams" || c.Data.Reader != nil || score != "" // else rewards are the recorded ones
	}
}

// Task is an entry of the key task: the work of a run.
type Task struct {
	Run func(ctx context.Context, j *Job) error
	// On returns the subject in the first line of output, such as "on synthetic shapes".
	On func(c *Config) string
	// Saves says that an interrupted run keeps what it has done, for a resume.
	Saves bool
	// Options points to the defaults of the section with the task's name; nil: there is no such section.
	Options any
	// Validate checks what several sections decide together; nil: nothing.
	Validate func(c *Config) error

	// The sections that act in such a run, beside report, logging, on_end and the task's own. Keys of other sections are refused on
	// the command line.
	Sections []string // are validated as a whole
	Reads    []string // sections, or single keys of others
	Policy   bool     // the section of the policy
	Trains   bool     // the phases of the schedule, and the sections that the policy needs to train
	Stages   []string // tasks that run with this one's configuration
}

// Policy is an entry of the key policy: a kind of model to train.
type Policy struct {
	Section string // of its own
	Help    string // of that section
	Options any    // points to its defaults
	// New reads the data and builds the policy that a configuration describes.
	New func(ctx context.Context, j *Job) (Workload, error)
	// Trains names the sections, or single keys of others, that training reads beside the policy's own.
	Trains []string
	// Needs gives the key without which a section of Trains, or a part of a section, does nothing in training.
	Needs map[string]string
	// Ignores names keys of the tasks' sections, without the section, that do nothing with the policy, nor do the keys below them.
	Ignores []string
	// Text returns the options common to all token policies; nil: the policy selects examples.
	Text func(c *Config) *tokens.Options
	// Smoothing returns the label smoothing of phases that imitate; nil: none.
	Smoothing func(c *Config) float64
	// Validate checks what several sections decide together; nil: nothing.
	Validate func(c *Config) error
}

// Workload gives task=train a policy with its data, baselines and examples. The schedule, checkpoints, resume and report are the
// same for all kinds of policies. Small interfaces of the package workload add optional powers.
type Workload interface {
	// Policy returns the policy to train, fresh or from init.checkpoint. The caller frees it.
	Policy() selector.Policy
	phases.Sources
	// PhasesData returns the data of validation.
	PhasesData() phases.Data
	// Baselines records the evaluations that need no trained policy.
	Baselines() error
	// Examples writes the choices or answers of the initial and the best policy on a few held-out queries.
	Examples(env *phases.Env, result phases.Result) error
	// Summary describes the data for summary.json and the report.
	Summary() record.DataSummary
}

// sections returns the sections of the entries.
func (e Entries) sections() map[string]configs.Section {
	out := maps.Clone(e.Shared)
	if out == nil {
		out = map[string]configs.Section{}
	}
	for name, p := range all(e.Policies) {
		out[p.Section] = configs.Section{Options: p.Options, Help: p.Help + " (policy=" + name + ")", Before: "sft"}
	}
	for name, t := range all(e.Tasks) {
		if t.Options != nil {
			out[name] = configs.Section{Options: t.Options, Help: "task=" + name, Before: "report"}
		}
	}
	return out
}

// all returns the entries of a table, which may be missing in tests.
func all[T any](t *registry.Table[T]) map[string]T {
	out := map[string]T{}
	if t != nil {
		for _, name := range t.Names() {
			out[name], _ = t.Get(name)
		}
	}
	return out
}

// Own returns the section of an entry in the entry's own type. A section of another type, or none, is a fault of the program.
func Own[T any](c *Config, section string) *T {
	own, ok := c.Sections[section].Options.(*T)
	if !ok {
		panic(fmt.Sprintf("section %s holds %T, want %T", section, c.Sections[section].Options, own))
	}
	return own
}

// Copy returns a configuration that shares no section of an entry or a phase with c.
func (c *Config) Copy() *Config {
	own := *c
	own.Sections = maps.Clone(c.Sections)
	for name, s := range own.Sections {
		options := reflect.New(reflect.TypeOf(s.Options).Elem())
		options.Elem().Set(reflect.ValueOf(s.Options).Elem())
		s.Options = options.Interface()
		own.Sections[name] = s
	}
	return &own
}

// Does returns the entry of the configuration's task; the zero value for an unknown task, which other code reports.
func (c *Config) Does() Task { return all(c.Entries.Tasks)[c.Task] }

// Trains reports whether the run makes training steps.
func (c *Config) Trains() bool { return c.Does().Trains && !c.DryRun }

// Learner returns the entry of the configuration's policy.
func (c *Config) Learner() Policy { return all(c.Entries.Policies)[c.Policy] }

// Smoothing returns the label smoothing of phases that imitate.
func (c *Config) Smoothing() float64 {
	if of := c.Learner().Smoothing; of != nil {
		return of(c)
	}
	return 0
}

func (c *Config) Section() string { return c.Learner().Section }

// Text returns the options of the configuration's token policy; nil where the policy selects examples.
func (c *Config) Text() *tokens.Options {
	if text := c.Learner().Text; text != nil {
		return text(c)
	}
	return nil
}
