package experiments

import (
	"context"
	"math"

	"fulcrum/beamdata"
	"fulcrum/beamdata/audit"
	"fulcrum/phases"
	"fulcrum/phases/preflight"
	"fulcrum/reports/record"
	"fulcrum/rewardutil"
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
	// Audit looks for faults of the data that training would not notice.
	Audit(lim audit.Limits) ([]audit.Fault, error)
	// Recompute holds what phases and validation read of the data against values read query by query.
	Recompute(report *preflight.Report, plan phases.Plan, e effort) error
	// Largest returns the n queries of a source that make the largest batch.
	Largest(src selector.Source, n int) []int
	// Clusters are the groups of queries that are not independent, by split and query id: those about one image, or with
	// one value of the key by. Splits of which nothing is known are left out.
	Clusters(by string) (clusters, error)
	// Summary describes the data for summary.json and the report.
	Summary() record.DataSummary
}

// workloadMaker reads the data and builds the policy that a configuration describes.
type workloadMaker func(ctx context.Context, j *job) (workload, error)

// phasesData is what validation needs of the configuration, whatever the policy. average is that of the
// phase whose loss val_loss compares with.
func (c *Config) phasesData(average string) phases.Data {
	return phases.Data{
		Shuffle:   c.Data.Shuffle,
		Normalize: func(r []float64) []float64 { return rewardutil.Normalize(r, c.Data.Normalize) },
		ValLoss:   phases.ValLoss{Temperature: c.RCE.Temperature.At(0, 1), Relative: c.RCE.Temperature.Relative, Raw: c.RCE.Rewards == "raw", PerToken: average == "token"},
		Advantage: c.GRPO.Advantage,
	}
}

// recordBaseline records what a baseline earned on the queries ids of a split. An accuracy whose mean is NaN is
// unknown.
func recordBaseline(j *job, split, name string, ids []int64, sel beamdata.Selections, shots int) error {
	fields := map[string]any{"split": split, "policy": name, "reward": sel.Mean()}
	known := !math.IsNaN(sel.MeanAccuracy())
	if known {
		fields["accuracy"] = sel.MeanAccuracy()
	}
	if err := j.log.Record(record.KindEval, "", 0, 0, 0, fields); err != nil {
		return err
	}
	scores := record.Evaluation{Split: split, Policy: name, Metric: "reward", Shots: shots, QueryIDs: ids, Scores: sel.Reward}
	if err := j.log.Scores(scores); err != nil || !known {
		return err
	}
	scores.Metric, scores.Scores = "accuracy", sel.Accuracy
	return j.log.Scores(scores)
}
