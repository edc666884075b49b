package workload

import (
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/experiments/job"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/phases"
	"fulcrum/reports/record"
	"fulcrum/selector"
)

// pointerExamples writes examples.json: what the initial and the best policy select for a few held-out questions. They
// are taken evenly along the change of reward, from the largest loss to the largest gain, so that they flatter nobody.
func pointerExamples(j *job.Job, b *beamdata.Bundle, env *phases.Env, result phases.Result) error {
	set, src := b.Eval, env.Data.Eval
	if src == nil {
		set, src = b.Val, env.Data.Val
	}
	if set.Scorer == nil || b.Items == nil {
		return nil
	}
	before, after, err := initialAndBest(env, src, result)
	if err != nil {
		return err
	}
	out := []record.Example{}
	changed := func(i int) bool { // other examples, not another order
		return !slices.Equal(slices.Sorted(slices.Values(before.Selections[i])), slices.Sorted(slices.Values(after.Selections[i])))
	}
	for _, i := range pickExamples(before.Rewards, after.Rewards, changed) {
		e := record.Example{RewardBefore: before.Rewards[i], RewardAfter: after.Rewards[i]}
		e.Question, e.Answer, _ = strings.Cut(b.Text(int(set.Row(i))), joint)
		e.Before, e.After = texts(b, set, i, before.Selections[i]), texts(b, set, i, after.Selections[i])
		out = append(out, e)
	}
	return writeExamples(j, out)
}

// initialAndBest are the evaluations on src that examples compare. A resumed run has not evaluated the start.
func initialAndBest(env *phases.Env, src selector.Source, result phases.Result) (before, after *phases.Validation, err error) {
	before = result.InitialEval
	if before == nil {
		v, err := phases.Validate(nil, env.Initial, env.Initial, src, env.Data)
		if err != nil {
			return nil, nil, err
		}
		before = &v
	}
	return before, result.BestEval, nil
}

func writeExamples(j *job.Job, out []record.Example) error {
	return atomicfile.WriteJSON(filepath.Join(j.Dir, "examples.json"), out)
}

// pickExamples picks five of the queries that changed, evenly along the change of reward: the largest gain, the
// largest loss and what lies between.
func pickExamples(before, after []float64, changed func(i int) bool) []int {
	const shown = 5
	var out []int
	all := list.Filter(stat.Indices(len(after)), changed)
	gain := func(i int) float64 { return after[i] - before[i] }
	sort.SliceStable(all, func(x, y int) bool { return gain(all[x]) > gain(all[y]) })
	for k := range min(shown, len(all)) {
		out = append(out, all[k*(len(all)-1)/max(min(shown, len(all))-1, 1)])
	}
	return out
}

func texts(b *beamdata.Bundle, set *beamdata.Set, query int, selection []int64) []record.ItemText {
	pool := set.Pool(query)
	var out []record.ItemText
	for _, p := range selection {
		q, a, _ := strings.Cut(b.Text(int(pool[p])), joint)
		out = append(out, record.ItemText{Question: q, Answer: a})
	}
	return out
}

// joint stands between the question and the answer of beamdata.Bundle.Text.
const joint = " — "
