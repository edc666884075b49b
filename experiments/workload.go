package experiments

import (
	"fulcrum/phases"
	"fulcrum/reports"
	"fulcrum/selector"
)

// workload is what a policy kind brings to task=train: its data, the policy itself, and what only that
// kind can show. The schedule, checkpoints, resume and report are the same for all kinds.
type workload interface {
	// Policy returns the policy to train, fresh or from init.checkpoint. The caller frees it.
	Policy() selector.Policy
	// Beams are the recorded candidates that sft and rce imitate, Records the recorded groups of offline
	// GRPO, Online the queries of rollouts. phase is who asks, for the error when there are none.
	Beams(phase string) (selector.Source, error)
	Records(phase string) (selector.Source, error)
	Online(phase string) (selector.Source, error)
	// PhasesData is what validation needs.
	PhasesData() phases.Data
	// Baselines records the evaluations that need no policy of ours.
	Baselines() error
	// Examples writes what the initial and the best policy did on a few held-out queries.
	Examples(env *phases.Env, result phases.Result) error
	// Export is phases.Env.Export; nil: checkpoints are written in our own layout alone.
	Export() (func(checkpoint, phase string, epoch int, metrics map[string]any) error, error)
	// Summary describes the data for summary.json and the report.
	Summary() reports.DataSummary
}

// workloadMaker reads the data and builds the policy that a configuration describes.
type workloadMaker func(r *run) (workload, error)
