//go:build !core

package tasks

import (
	"context"
	"slices"

	"fulcrum/experiments/job"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/phases"
	"fulcrum/reports/record"
)

// ScoreSealed scores the sealed questions of a run with the policy that init.checkpoint names, its best one, and with the baselines. The
// job's folder and log are of no run. open is called with the digest of the questions before anything is scored.
func ScoreSealed(ctx context.Context, j *job.Job, best *record.BestSummary, open func(digest string) error) ([]record.Evaluation, error) {
	j.Config.Data.OpenSealed = true
	w, err := openWorkload(ctx, j)
	if err != nil {
		return nil, err
	}
	policy := w.Policy()
	defer policy.Free()
	if _, err := planned(j, w); err != nil {
		return nil, err
	}
	if err := open(j.Data.EvalDigest); err != nil {
		return nil, err
	}
	if err := w.Baselines(); err != nil {
		return nil, err
	}
	of := w.PhasesData()
	v, err := phases.Validate(nil, policy, policy, of.Eval, of)
	if err != nil {
		return nil, err
	}
	e := record.Evaluation{Split: of.EvalName, Policy: record.PolicyBest, Phase: best.Phase, Epoch: best.Epoch, Metric: "reward",
		Shots: of.Shots, QueryIDs: list.Map(stat.Indices(of.Eval.Len()), of.Eval.ID), Scores: v.Rewards}
	all := []record.Evaluation{e}
	if len(v.Accuracies) == len(e.QueryIDs) {
		e.Metric, e.Scores = "accuracy", v.Accuracies
		all = append(all, e)
	}
	if err := j.RecordEvaluation(v.Metrics(""), all...); err != nil {
		return nil, err
	}
	if all, err = record.ReadEvals(j.Dir); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(e record.Evaluation) bool { return e.Split != of.EvalName })
	for i := range all {
		all[i].Split = record.Sealed
	}
	return all, nil
}
