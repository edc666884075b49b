package preflight

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/selector"
)

// Truth is what a source should give for some queries, read query by query and apart from the paths that training takes.
type Truth struct {
	Source  selector.Source
	Queries []int
	// Recorded returns the recorded candidates of a query: their scored steps and rewards. nil: none are recorded.
	Recorded func(q int) (actions [][]int64, rewards []float64, err error)
	// Try returns candidates to score.
	Try func(q int) ([][]int64, error)
	// Score returns what a candidate earns, and its accuracy, NaN where that is unknown. nil: nothing scores.
	Score func(q int, scored []int64, truncated bool) (reward, accuracy float64, err error)
}

// closeRewards is how far two rewards of the same candidate may lie apart: sums in another order.
const closeRewards = 1e-6

func near(a, b float64) bool {
	return math.Abs(a-b) <= closeRewards*math.Max(1, math.Abs(b)) || math.IsNaN(a) && math.IsNaN(b)
}

// Records checks that recorded candidates reach the phases as they stand in the data, in a batch and alone.
func (r *Report) Records(t Truth) error {
	if t.Recorded == nil || len(t.Queries) == 0 {
		return nil
	}
	r.checks++
	together := t.Source.Recorded(t.Queries)
	var truth [][]float64 // rewards
	wrong, first, what := 0, 0, ""
	for i, q := range t.Queries {
		actions, rewards, err := t.Recorded(q)
		if err != nil {
			return err
		}
		truth = append(truth, rewards)
		alone := t.Source.Recorded([]int{q})
		says := apartFrom(together, i, actions, rewards)
		if says == "" {
			says = apartFrom(alone, 0, actions, rewards)
		}
		if says != "" {
			if wrong == 0 {
				first, what = q, says
			}
			wrong++
		}
	}
	r.Saw(Name, "recorded_differ", "candidates of %d queries of %s as in the data", len(t.Queries)-wrong, t.Source.Name())
	if wrong == 0 {
		return nil
	}
	r.found(Name, "recorded_differ", "", float64(wrong)/float64(len(t.Queries)), 0, "%d of %d queries of %s reach the phases with other "+
		"recorded candidates than the data has (query %d: %s)%s", wrong, len(t.Queries), t.Source.Name(), t.Source.ID(first), what,
		shifted(rewardsOf(together), truth))
	return nil
}

// apartFrom says how group i of a batch differs from the candidates that it should hold; "" where it does not.
func apartFrom(b *selector.Batch, i int, actions [][]int64, rewards []float64) string {
	n := b.Part(i, i+1).NumValid()
	if n != len(actions) {
		return fmt.Sprintf("%d candidates, want %d", n, len(actions))
	}
	for g := range actions {
		if got := b.Scored(i, g); !slices.Equal(got, actions[g]) {
			return fmt.Sprintf("candidate %d is %v, want %v", g+1, some(got), some(actions[g]))
		}
		if got := b.Rewards[i*b.G+g]; !near(got, rewards[g]) {
			return fmt.Sprintf("candidate %d has the reward %.6g, want %.6g", g+1, got, rewards[g])
		}
	}
	return ""
}

func some(x []int64) []int64 { return x[:min(len(x), 8)] }

func rewardsOf(b *selector.Batch) [][]float64 {
	return list.Map(stat.Indices(b.B()), func(i int) []float64 { return valid(b, i) })
}

// shifted says where wrong rewards come from, if that can be told: "; …", else "".
func shifted(got, want [][]float64) string {
	var g []float64
	for i := range got {
		if len(got[i]) != len(want[i]) {
			return ""
		}
		g = append(g, got[i]...)
	}
	wrong := func(i int) bool { return len(got[i]) > 0 && !slices.EqualFunc(got[i], want[i], near) }
	explains := func(other func(i, k int) (float64, bool)) bool {
		bad, explained := 0, 0
		for i := range got {
			if !wrong(i) {
				continue
			}
			for k, x := range got[i] {
				if near(x, want[i][k]) {
					continue
				}
				bad++
				if y, ok := other(i, k); ok && near(x, y) {
					explained++
				}
			}
		}
		return bad > 1 && 4*explained >= 3*bad
	}
	n := len(got)
	neighbour := func(by int) func(i, k int) (float64, bool) {
		return func(i, k int) (float64, bool) {
			of := want[(i+by+n)%n]
			if k >= len(of) {
				return 0, false
			}
			return of[k], true
		}
	}
	inside := func(by int) func(i, k int) (float64, bool) {
		return func(i, k int) (float64, bool) { return want[i][(k+by+len(want[i]))%len(want[i])], true }
	}
	most, least := slices.Max(append(slices.Clone(g), math.Inf(-1))), slices.Min(append(slices.Clone(g), math.Inf(1)))
	for _, of := range []struct {
		what  string
		other func(i, k int) (float64, bool)
	}{
		{"the rewards are those of the next query", neighbour(1)},
		{"the rewards are those of the query before", neighbour(-1)},
		{"the rewards are those of the next candidate", inside(1)},
		{"the rewards are those of the candidate before", inside(-1)},
		{"the rewards have the other sign", func(i, k int) (float64, bool) { return -want[i][k], true }},
		{fmt.Sprintf("rewards are cut at %.4g", most), func(i, k int) (float64, bool) { return most, want[i][k] > most }},
		{fmt.Sprintf("rewards are raised to %.4g", least), func(i, k int) (float64, bool) { return least, want[i][k] < least }},
	} {
		if explains(of.other) {
			return "; " + of.what
		}
	}
	return ""
}

// Scores checks that candidates earn in a batch what they earn alone, and so do freshly sampled ones on the way that
// training takes: policy samples `samples` candidates a query. There is nothing to check where nothing scores.
func (r *Report) Scores(t Truth, policy selector.Policy, data phases.Data, samples int) error {
	scorer, ok := t.Source.(selector.Scorer)
	if !ok || !scorer.CanScore() || t.Score == nil || len(t.Queries) == 0 {
		return nil
	}
	if t.Try != nil {
		b, err := t.batch()
		if err != nil {
			return err
		}
		if err := scorer.Score(b); err != nil {
			return err
		}
		if err := r.rescore(t, b, "candidates of "+t.Source.Name()); err != nil {
			return err
		}
	}
	if samples == 0 {
		return nil
	}
	var b *selector.Batch
	err := torchx.Try(func() (err error) {
		defer torchx.Scope()()
		b, err = phases.SampleGroups(policy, t.Source, t.Queries, samples, data.Shots, 1, uint64(r.seed))
		return err
	})
	if err != nil {
		return err
	}
	return r.rescore(t, b, "sampled candidates of "+t.Source.Name())
}

// batch puts the candidates to try into one.
func (t Truth) batch() (*selector.Batch, error) {
	groups := make([][][]int64, len(t.Queries))
	g, steps := 1, 1
	for i, q := range t.Queries {
		var err error
		if groups[i], err = t.Try(q); err != nil {
			return nil, err
		}
		g = max(g, len(groups[i]))
		for _, c := range groups[i] {
			steps = max(steps, len(c))
		}
	}
	b := selector.NewBatch(t.Source, t.Queries, g, steps)
	for i, group := range groups {
		for k, c := range group {
			b.Set(i, k, c, math.NaN())
		}
	}
	return b, nil
}

// rescore compares the rewards of a batch with what every candidate earns alone.
func (r *Report) rescore(t Truth, b *selector.Batch, what string) error {
	r.checks++
	truth := make([][]float64, b.B())
	wrong, n, said := 0, 0, ""
	for at, ok := range b.Valid {
		if !ok {
			continue
		}
		i, g := at/b.G, at%b.G
		want, _, err := t.Score(b.Queries[i], b.Scored(i, g), b.Cut(at))
		if err != nil {
			return err
		}
		truth[i] = append(truth[i], want)
		n++
		if near(b.Rewards[at], want) {
			continue
		}
		if wrong == 0 {
			said = fmt.Sprintf("query %d, candidate %d: %.6g, want %.6g", t.Source.ID(b.Queries[i]), g+1, b.Rewards[at], want)
		}
		wrong++
	}
	r.Saw(Name, "scores_differ", "%d %s earn in a batch what they earn alone", n-wrong, what)
	if wrong > 0 {
		r.found(Name, "scores_differ", "", float64(wrong)/float64(n), 0, "%d of %d %s earn another reward than the same candidate alone (%s)%s",
			wrong, n, what, said, shifted(rewardsOf(b), truth))
	}
	return nil
}

// Validated checks that the validation of a policy reports what its own answers earn one by one. t names all queries of
// its source.
func (r *Report) Validated(policy selector.Policy, data phases.Data, t Truth) error {
	scorer, ok := t.Source.(selector.Scorer)
	if !ok || !scorer.CanScore() || t.Score == nil || t.Source.Len() == 0 {
		return nil
	}
	r.checks++
	var got phases.Validation
	var answers *selector.Batch
	err := torchx.Try(func() (err error) {
		defer torchx.Scope()()
		if got, err = phases.Validate(nil, policy, policy, t.Source, data); err == nil {
			answers, _ = policy.Decode(t.Source, t.Queries, data.Shots, 1)
		}
		return err
	})
	if err != nil {
		return err
	}
	reward, accuracy, n := 0.0, 0.0, float64(len(t.Queries))
	says := ""
	if len(got.Rewards) != len(t.Queries) || len(got.Selections) != len(t.Queries) {
		says = fmt.Sprintf("%d rewards of %d answers, want %d", len(got.Rewards), len(got.Selections), len(t.Queries))
	}
	for i, q := range t.Queries {
		x, acc, err := t.Score(q, answers.Scored(i, 0), answers.Cut(i))
		if err != nil {
			return err
		}
		reward, accuracy = reward+x/n, accuracy+acc/n
		if says == "" && !near(got.Rewards[i], x) {
			says = fmt.Sprintf("query %d: %.6g, want %.6g", t.Source.ID(q), got.Rewards[i], x)
		}
	}
	if says == "" && !near(got.Reward, reward) {
		says = fmt.Sprintf("their mean is %.6g, want %.6g", got.Reward, reward)
	}
	if says == "" && !math.IsNaN(accuracy) && !near(got.Accuracy, accuracy) {
		says = fmt.Sprintf("their mean accuracy is %.6g, want %.6g", got.Accuracy, accuracy)
	}
	r.Saw(Name, "validation_differs", "%d queries: reward %.4g, as one by one", len(t.Queries), got.Reward)
	if says != "" {
		r.found(Name, "validation_differs", "", got.Reward, reward, "validation does not report what the policy's answers earn one by one (%s): "+
			"its numbers, and the checkpoint chosen by them, cannot be trusted", says)
	}
	return nil
}

// roundTrip is the share of candidates that may be others after decoding: completions with odd spaces are.
const roundTrip = 0.1

// Returned reports how many of the recorded candidates looked at are others after decoding and encoding.
func (r *Report) Returned(name string, wrong, looked int, example string) {
	if looked == 0 {
		return
	}
	r.checks++
	r.Saw(Name, "round_trip", "%d of %d recorded candidates of %s are the same after decoding and encoding", looked-wrong, looked, name)
	if share := float64(wrong) / float64(looked); share > roundTrip {
		r.found(Name, "round_trip", "", share, roundTrip, "%d of %d recorded candidates of %s are others after decoding and encoding them again "+
			"(%s): what is trained on is not what is scored and shown", wrong, looked, name, example)
	}
}
