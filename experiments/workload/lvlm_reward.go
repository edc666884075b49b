package workload

import (
	"context"
	"math"
	"slices"

	"fulcrum/beamdata"
	"fulcrum/experiments/icl"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/usage"
	"fulcrum/selector/pointer"
)

// lvlmOf returns the options of the section lvlm.
func lvlmOf(c *job.Config) *lvlm.Options { return job.Own[lvlm.Options](c, "lvlm") }

// AsksModel reports whether the frozen model scores selections.
func AsksModel(c *job.Config) bool { return lvlmOf(c).Reward != nil }

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
	if rows := b.Val.Table.Rows; rows != len(set.Records) {
		return nil, usage.Errorf("lvlm.reward=%s: %d records and %d rows of embeddings: row i must belong to record i", *score,
			len(set.Records), rows)
	}
	model, err := OpenScorer(ctx, j)
	if err != nil {
		return nil, err
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

// askedBaselines scores random and similar selections, and the best recorded beams where there are some. A random one is drawn once
// a query: asking is dear.
func (w *Pointer) askedBaselines(split evaluatedSet) error {
	random, queries := make([][]int32, split.set.Len()), stat.Indices(split.set.Len())
	for i := range random {
		draw := rng.New(w.job.Config.Data.SplitSeed, "baseline random", int(split.set.IDs[i]))
		for _, p := range draw.Perm(split.set.PoolSize(i))[:min(w.shots(), split.set.PoolSize(i))] {
			random[i] = append(random[i], int32(p))
		}
	}
	similar := beamdata.Similarity(split.set, w.shots())
	all := []struct {
		name      string
		positions [][]int32
	}{{"random", random}, {"similarity", similar}, {"best_beam", beamdata.BestBeam(split.set, w.shots(), similar)}}
	for _, of := range all {
		if of.positions == nil {
			continue
		}
		rewards, accuracy, err := w.ask(split.set)(queries, of.positions)
		if err != nil {
			return err
		}
		sel := beamdata.Selections{Positions: of.positions, Reward: rewards, Accuracy: accuracy}
		if accuracy == nil {
			sel.Accuracy = slices.Repeat([]float64{math.NaN()}, len(rewards))
		}
		if err := recordBaseline(w.job, split.name, of.name, split.set.IDs, sel, w.shots()); err != nil {
			return err
		}
	}
	return nil
}
