//go:build !core

package workload

import (
	"context"

	"fulcrum/beamdata"
	"fulcrum/experiments/icl"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/internal/option"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/usage"
	"fulcrum/selector/pointer"
)

func lvlmOf(c *job.Config) *lvlm.Options { return job.Own[lvlm.Options](c, "lvlm") }

// Frozen returns what frozen models do in training: that of the section lvlm, and CLIP with adapters.
func Frozen() job.Frozen {
	return job.Frozen{Ask: asksModel, Embed: adaptedClip, Score: func(c *job.Config) string { return option.Or(lvlmOf(c).Reward, "") }}
}

// asksModel returns who scores the selections of a set: the frozen model of the section lvlm, as lvlm.reward says. nil: nobody.
func asksModel(ctx context.Context, j *job.Job, b *beamdata.Bundle) (func(*beamdata.Set) pointer.Ask, error) {
	score := lvlmOf(j.Config).Reward
	if score == nil {
		return nil, nil
	}
	if j.Config.Data.Reader != nil || b.Val.Scorer != nil {
		return nil, usage.Errorf("lvlm.reward=%s: data.name=%s has a reader that scores selections already: leave out lvlm.reward, or take data "+
			"without one (data=beams, data.reader=null)", *score, b.Name)
	}
	set, err := j.Config.Records(nil)
	if err != nil {
		return nil, err
	}
	if rows := b.Val.Table.Rows; rows != set.Records.Len() {
		return nil, usage.Errorf("lvlm.reward=%s: %d records and %d rows of embeddings: row i must belong to record i", *score,
			set.Records.Len(), rows)
	}
	if err := icl.Answered(set.Records, b.RCE, b.Records, b.Online, b.Val, b.Eval); err != nil {
		return nil, usage.Errorf("lvlm.reward=%s: %v", *score, err)
	}
	model, err := OpenScorer(ctx, j)
	if err != nil {
		return nil, err
	}
	if id := model.Identity(); id.Backend != "local" {
		j.Served = append(j.Served, tensorfile.Input{Path: "lvlm.model", Digest: id.Model})
	}
	j.BeforeResults(func(ctx context.Context) error { return model.Vouch(ctx, j) })
	s := &icl.Search{Scorer: model, Records: set.Records, BeamsOptions: icl.BeamsOptions{Score: *score}}
	if *score == "cider" {
		s.Captions = icl.References(set.Records)
	}
	return func(set *beamdata.Set) pointer.Ask {
		return func(queries []int, positions [][]int32) (rewards, accuracy []float64, err error) {
			rows, shots := make([]int, len(queries)), make([][]int32, len(queries))
			for i, q := range queries {
				rows[i] = int(set.Row(q))
				for _, p := range positions[i] {
					shots[i] = append(shots[i], set.Pool(q)[p])
				}
			}
			return s.Rewards(ctx, rows, shots)
		}
	}, nil
}
