package recorded

import "math"

// RecordedScores scores an order of recorded candidates, query by query: the verdict on data without a reader
// that could score new selections.
type Scores struct {
	IDs    []int64   // [Q] queries with several candidates
	Reward []float64 // [Q] expected recorded reward

	OrderedIDs []int64   // [O] those of them whose rewards differ
	Top1       []float64 // [O] share of the candidates put first that are best
	Pairs      []float64 // [O] share of the pairs with different rewards that are in order; a tie counts half

	Broken bool // a number was not finite: nothing can be said
}

// Join adds the queries of other scores behind those of r.
func (r *Scores) Join(o Scores) {
	r.IDs, r.Reward, r.OrderedIDs = append(r.IDs, o.IDs...), append(r.Reward, o.Reward...), append(r.OrderedIDs, o.OrderedIDs...)
	r.Top1, r.Pairs, r.Broken = append(r.Top1, o.Top1...), append(r.Pairs, o.Pairs...), r.Broken || o.Broken
}

// Add adds a query whose candidates have these rewards. scores put them in order, the highest first; expected is the
// reward that following them gives.
func (r *Scores) Add(id int64, scores, rewards []float64, expected float64) {
	if len(rewards) < 2 {
		return
	}
	first, best := math.Inf(-1), math.Inf(-1)
	for i, s := range scores {
		if notFinite(s) || notFinite(rewards[i]) {
			r.Broken = true
			return
		}
		first, best = math.Max(first, s), math.Max(best, rewards[i])
	}
	r.IDs, r.Reward = append(r.IDs, id), append(r.Reward, expected)
	top, right, pairs, inOrder := 0.0, 0.0, 0.0, 0.0
	for i, s := range scores {
		if s == first {
			top++
			if rewards[i] == best {
				right++
			}
		}
		for j := range i {
			if rewards[i] == rewards[j] {
				continue
			}
			pairs++
			switch {
			case scores[j] == s:
				inOrder += 0.5
			case (s > scores[j]) == (rewards[i] > rewards[j]):
				inOrder++
			}
		}
	}
	if pairs > 0 {
		r.OrderedIDs, r.Top1, r.Pairs = append(r.OrderedIDs, id), append(r.Top1, right/top), append(r.Pairs, inOrder/pairs)
	}
}

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// Follow adds a query whose candidate of the highest score is taken; a tie is shared.
func (r *Scores) Follow(id int64, scores, rewards []float64) {
	first, sum, n := math.Inf(-1), 0.0, 0.0
	for i, s := range scores {
		if s > first {
			first, sum, n = s, 0, 0
		}
		if s == first {
			sum += rewards[i]
			n++
		}
	}
	r.Add(id, scores, rewards, sum/n)
}

// Draw adds a query whose candidates are drawn by their log-probabilities, renormalised among them.
func (r *Scores) Draw(id int64, logp, rewards []float64) {
	r.Add(id, logp, rewards, Expected(logp, rewards))
}

// Expected returns the mean of values that are drawn by log-probabilities, renormalised among them.
func Expected(logp, values []float64) float64 {
	top, sum, expected := math.Inf(-1), 0.0, 0.0
	for _, l := range logp {
		top = math.Max(top, l)
	}
	for i, l := range logp {
		p := math.Exp(l - top)
		sum += p
		expected += p * values[i]
	}
	return expected / sum
}

// Each calls f with the scores of every metric that has any, by its name.
func (r Scores) Each(f func(metric string, ids []int64, scores []float64) error) error {
	if r.Broken {
		return nil
	}
	for _, m := range []struct {
		name   string
		ids    []int64
		scores []float64
	}{{"recorded_reward", r.IDs, r.Reward}, {"top1_accuracy", r.OrderedIDs, r.Top1}, {"pair_accuracy", r.OrderedIDs, r.Pairs}} {
		if len(m.ids) == 0 {
			continue
		}
		if err := f(m.name, m.ids, m.scores); err != nil {
			return err
		}
	}
	return nil
}

func (r Scores) Means() map[string]float64 {
	out := map[string]float64{}
	r.Each(func(metric string, ids []int64, scores []float64) error {
		for _, s := range scores {
			out[metric] += s / float64(len(ids))
		}
		return nil
	})
	return out
}
