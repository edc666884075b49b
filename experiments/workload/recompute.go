package workload

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/phases"
	"fulcrum/phases/preflight"
	"fulcrum/reports/page"
	"fulcrum/rewardutil/reward"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
	"fulcrum/selector/prompts"
)

// This file reads data and rewards once more, query by query, for the preflight to hold the paths of training against.

// recomputed is how many queries of a set are read again.
const recomputed = 64

// drawn returns up to n of total, in ascending order.
func drawn(n, total int, seed int64, name string) []int {
	all := rng.New(seed, "preflight "+name).Perm(total)
	return slices.Sorted(slices.Values(all[:min(n, total)]))
}

// sourcesOf returns the sources of a plan's phases that hold queries, each once.
func sourcesOf[S interface {
	comparable
	selector.Source
}](plan phases.Plan) (sources []S) {
	for _, p := range plan.Phases {
		if src, ok := p.Info().Source.(S); ok && src.Len() > 0 && !slices.Contains(sources, src) {
			sources = append(sources, src)
		}
	}
	return sources
}

// Recompute reads the sets that phases train on, and the validation queries.
func (w *Pointer) Recompute(report *preflight.Report, plan phases.Plan, _ Effort) error {
	data := w.PhasesData()
	report.Saw("model", "parameters", "%d, all trained", w.policy.Params().Numel())
	for i, given := range sourcesOf[*pointer.Source](plan) {
		src := given.Uncontrolled()
		if i == 0 {
			w.inputs(report, given)
			report.Embeddings(w.similarity(src.Set()))
			if err := alone(report, w.policy, src.Set(), w.job.Config.Seed); err != nil {
				return err
			}
		}
		t := w.truth(src, drawn(recomputed, src.Len(), w.job.Config.Seed, src.Name()))
		if err := report.Records(t); err != nil {
			return err
		}
		w.roundTrip(report, src, t.Queries)
		if err := report.Scores(t, w.policy, data, 4); err != nil {
			return err
		}
	}
	val := w.bundle.Val.Subset(drawn(recomputed, w.bundle.Val.Len(), w.job.Config.Seed, "val"))
	src := pointer.NewSource(val)
	src.EndRecorded(w.endAt)
	return report.Validated(w.policy, data, w.truth(src, stat.Indices(val.Len())))
}

// truth reads queries of a source from its set, candidate by candidate.
func (w *Pointer) truth(src *pointer.Source, queries []int) preflight.Truth {
	set := src.Set()
	recorded := func(q int) (actions [][]int64, rewards []float64, err error) {
		for g := range set.NumCandidates(q) {
			c := set.Candidate(q, g)
			steps := list.Convert[int64](c.Positions)
			if len(steps) < min(w.endAt, set.PoolSize(q)) {
				steps = append(steps, pointer.Stop)
			}
			actions, rewards = append(actions, steps), append(rewards, c.Reward)
		}
		return actions, rewards, nil
	}
	t := preflight.Truth{Source: src, Queries: queries}
	if set.Shots > 0 {
		t.Recorded = recorded
	}
	t.Try = func(q int) ([][]int64, error) {
		actions, _, err := recorded(q)
		r, shots := rng.New(w.job.Config.Seed, "preflight try", q), min(w.shots(), set.PoolSize(q))
		for range 2 {
			actions = append(actions, list.Convert[int64](r.Perm(set.PoolSize(q))[:shots]))
		}
		return actions, err
	}
	if set.Scorer != nil {
		t.Score = func(q int, scored []int64, _ bool) (float64, float64, error) {
			chosen := list.Filter(scored, func(a int64) bool { return a >= 0 }) // no Stop
			reward, accuracy := set.Scorer.Score(q, list.Convert[int32](chosen))
			return reward, accuracy, nil
		}
	}
	return t
}

// roundTrip takes recorded positions to the ids that they stand for and back.
func (w *Pointer) roundTrip(report *preflight.Report, src *pointer.Source, queries []int) {
	wrong, looked, example := 0, 0, ""
	for _, q := range queries {
		b, pool := src.Recorded([]int{q}), src.Set().Pool(q)
		for g := range b.G {
			if !b.Valid[g] {
				continue
			}
			looked++
			for _, a := range b.Chosen(0, g) {
				if a < 0 || a >= int64(len(pool)) || slices.Index(pool, pool[a]) != int(a) {
					if wrong == 0 {
						example = fmt.Sprintf("query %d: position %d of a pool of %d", src.ID(q), a, len(pool))
					}
					wrong++
					break
				}
			}
		}
	}
	report.Returned(src.Name(), wrong, looked, example)
}

// Recompute reads the samples that phases train on, and some validation samples. A scorer of the user's may take seconds
// a sample, and need not say the same twice: its scores are not asked for again.
func (w *textWorkload[P]) Recompute(report *preflight.Report, plan phases.Plan, e Effort) error {
	c, data := w.job.Config, w.PhasesData()
	if e.Short {
		data.Shots = min(data.Shots, shortShots)
	}
	scores := w.rewards != nil && c.Rewards.External.Weight == 0 && c.Rewards.Points.Weight == 0
	few := min(e.Queries, 8)
	w.weighed(report)
	for i, src := range sourcesOf[*prompts.Source[P]](plan) {
		if i == 0 {
			if err := w.inputs(report, src, e.few()); err != nil {
				return err
			}
		}
		src = src.Uncontrolled()
		t := w.truth(src, drawn(recomputed, src.Len(), c.Seed, src.Name()))
		if err := report.Records(t); err != nil {
			return err
		}
		if err := w.roundTrip(report, src, t.Queries); err != nil {
			return err
		}
		if !scores || src.Set() == w.demos {
			continue
		}
		if err := report.Scores(t, w.policy, data, 0); err != nil {
			return err
		}
		if t.Queries, t.Try = drawn(few, src.Len(), c.Seed, "draws"), nil; e.Long {
			continue
		}
		if err := report.Scores(t, w.policy, data, 2); err != nil {
			return err
		}
	}
	if !scores || e.Long {
		return nil
	}
	val := w.bundle.Val.Subset(drawn(few, w.bundle.Val.Len(), c.Seed, "val"))
	src := prompts.New(w.ctx, val.Name, val, w.render, w.text, w.rewards)
	return report.Validated(w.policy, data, w.truth(src, stat.Indices(val.Len())))
}

// shortShots is the length of completions where a trial must be cheap.
const shortShots = 8

// truth reads samples of a source from its set, completion by completion.
func (w *textWorkload[P]) truth(src *prompts.Source[P], queries []int) preflight.Truth {
	recorded := func(q int) (actions [][]int64, rewards []float64, err error) {
		s, err := src.Set().Sample(q)
		if err != nil {
			return nil, nil, err
		}
		completions := s.Completions
		if len(completions) == 0 && s.Reference != "" {
			completions = []conversation.Recorded{{Text: s.Reference, Reward: 1}}
		}
		for _, c := range completions {
			ids := append(w.text.Encode(c.Text), w.text.EOS[0])
			actions, rewards = append(actions, ids[:min(len(ids), src.MaxTokens())]), append(rewards, c.Reward)
		}
		return actions, rewards, nil
	}
	t := preflight.Truth{Source: src, Queries: queries, Recorded: recorded}
	t.Try = func(q int) ([][]int64, error) { // its own completions, and the target of another sample
		actions, _, err := recorded(q)
		if err != nil {
			return nil, err
		}
		other, _, err := recorded((q + 1) % src.Len())
		if len(other) > 0 {
			actions = append(actions, other[0])
		}
		return actions, err
	}
	if w.rewards != nil {
		t.Score = func(q int, scored []int64, truncated bool) (float64, float64, error) {
			s, err := src.Set().Sample(q)
			if err != nil {
				return 0, 0, err
			}
			ids := scored
			if n := len(ids); n > 0 && slices.Contains(w.text.EOS, ids[n-1]) {
				ids = ids[:n-1]
			}
			_, terms, err := w.rewards.Score(w.ctx, []reward.Item{{Name: s.Name, Prompt: s.Text(), Completion: w.text.Decode(ids),
				Reference: s.Reference, Answers: s.Answers, Images: s.Images(), Meta: s.Meta, Root: s.Root}})
			if err != nil {
				return 0, 0, err
			}
			accuracy := math.NaN()
			for _, name := range []string{"accuracy", "vqa"} { // the official one wins
				if x, ok := terms[name]; ok {
					accuracy = x[0]
				}
			}
			return w.total(terms), accuracy, nil
		}
	}
	return t
}

// total adds the terms of a reward up again.
func (w *textWorkload[P]) total(terms map[string][]float64) float64 {
	sum := list.Sum(w.rewards.Terms, func(t reward.Term) float64 { return t.Weight * terms[t.Name][0] })
	o := w.job.Config.Rewards
	return math.Min(math.Max(o.Scale*sum, option.Or(o.ClipMin, math.Inf(-1))), option.Or(o.ClipMax, math.Inf(1)))
}

// roundTrip takes recorded completions to token ids, to text and back.
func (w *textWorkload[P]) roundTrip(report *preflight.Report, src *prompts.Source[P], queries []int) error {
	wrong, looked, example := 0, 0, ""
	for _, q := range queries {
		s, err := src.Set().Sample(q)
		if err != nil {
			return err
		}
		texts := append([]string{s.Reference}, list.Map(s.Completions, func(c conversation.Recorded) string { return c.Text })...)
		for _, text := range texts {
			if text == "" {
				continue
			}
			looked++
			ids := w.text.Encode(text)
			if again := w.text.Decode(ids); again != text && !slices.Equal(w.text.Encode(again), ids) {
				if wrong == 0 {
					example = fmt.Sprintf("%s: %q became %q", s.Name, page.Clip(text, 61), page.Clip(again, 61))
				}
				wrong++
			}
		}
	}
	report.Returned(src.Name(), wrong, looked, example)
	return nil
}
