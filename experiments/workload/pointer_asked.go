package workload

import (
	"math"
	"slices"

	"fulcrum/beamdata"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
)

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
