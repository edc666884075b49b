package workload

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/beamdata/conversation"
	"fulcrum/experiments/job"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/phases/preflight"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/reward"
	"fulcrum/rewardutil/text"
	"fulcrum/rewardutil/vqa"
	"fulcrum/selector"
	"fulcrum/selector/prompts"
)

// textWorkload is what the token policies share: conversations whose last turn is imitated, or answered and rewarded. P is
// what the policy reads of a prompt.
type textWorkload[P any] struct {
	ctx     context.Context // of the task: ends on a signal
	job     *job.Job
	bundle  *conversation.Bundle
	seen    *conversation.Set // training samples that are evaluated; nil: none
	demos   *conversation.Set // those of bundle.Demos with a target; nil: no phase imitates any
	rewards *reward.Rewards   // nil: nothing scores completions
	sources map[*conversation.Set]*prompts.Source[P]
	used    map[string]*conversation.Set    // by who: the samples that hold what it needs
	skipped map[string]conversation.Skipped // by who skips and why
	asked   string                          // digest of the held-out questions, once Summary has read them
	sketch  []string                        // of the same; built-in worlds ask each other's questions about pictures of their own
	// validated is record.DataSummary.Validated
	validated string

	policy selector.Policy
	model  tokenModel
	length func(P) int // tokens of a prompt
	shapes func(report *preflight.Report, batch []P)
	render func(conversation.Sample) (P, error)
	text   prompts.Text // MaxTokens is the longest completion
	limit  string       // the key that says so
}

// tokenModel is what is asked of the model behind a token policy.
type tokenModel interface {
	Size() int // weights, trained or not
}

// newTextWorkload reads the data and builds the rewards; the policy's kind brings the rest.
func newTextWorkload[P any](ctx context.Context, j *job.Job) (textWorkload[P], error) {
	c := j.Config
	if err := checkModelPath(j); err != nil { // before any data is read
		return textWorkload[P]{}, err
	}
	w := textWorkload[P]{ctx: ctx, job: j, sources: map[*conversation.Set]*prompts.Source[P]{},
		used: map[string]*conversation.Set{}, skipped: map[string]conversation.Skipped{}}
	err := j.MapTorch(func() (err error) {
		if w.bundle, err = beamdata.LoadConversations(c.Data); err != nil {
			return err
		}
		if c.Rewards.Any() {
			if w.rewards, err = c.Rewards.Build(localJudge(j)); err != nil {
				return usage.Errorf("%v", err)
			}
			j.AtEnd(w.rewards)
			if least, greatest, ok := c.RewardRange(); ok {
				j.Ranges = map[string][2]float64{"reward": {least, greatest}}
			}
		}
		return nil
	})
	if err != nil {
		return w, err
	}
	if w.bundle.Notice != "" {
		j.Logf("data: %s", w.bundle.Notice)
	}
	if w.bundle.Val.Len() == 0 {
		return w, usage.Errorf("data.name=%s: no validation samples: lower data.train_ratio or name data.%s.val", w.bundle.Name,
			w.bundle.Name)
	}
	if w.bundle.Train.Len() == 0 {
		return w, usage.Errorf("data.name=%s: no training samples: raise data.train_ratio, or name data.%s.val; records of one "+
			"picture stay on one side of the split unless data.conversations.split_by=record", w.bundle.Name, w.bundle.Name)
	}
	if err := checkTextMetric(c); err != nil {
		return w, err
	}
	for _, of := range []struct {
		name  string
		set   **conversation.Set
		judge bool
	}{{"training", &w.bundle.Train, false}, {"demonstration", &w.bundle.Demos, false}, {"validation", &w.bundle.Val, true},
		{w.bundle.EvalName, &w.bundle.Eval, true}} {
		if (*of.set).Len() > 0 {
			*of.set, err = w.with("the "+of.name+" set", *of.set, conversation.Order,
				fmt.Sprintf("data.name=%s: the turns of every %s sample are in the wrong order", w.bundle.Name, of.name))
		}
		if err == nil && (*of.set).Len() > 0 && of.judge && w.rewards == nil { // then nothing but a target says what a policy is worth
			*of.set, err = w.with(of.name, *of.set, conversation.Target,
				fmt.Sprintf("data.name=%s: no %s sample ends with an assistant's turn or has answers, and no term of rewards has a "+
					"weight: nothing says what a policy is worth", w.bundle.Name, of.name))
		}
		if err != nil {
			return w, err
		}
	}
	if chosen, said := fewer(j, w.bundle.Val.Len()); chosen != nil {
		w.bundle.Val, w.validated = w.bundle.Val.Subset(chosen), said
	}
	if n := c.Data.Eval.TrainQueries; n != nil {
		w.seen = w.bundle.Train.Subset(beamdata.Spread(*n, w.bundle.Train.Len()))
	}
	return w, nil
}

// checkTextMetric refuses a checkpoint.best.metric that the rewards cannot give, before anything is validated by it.
func checkTextMetric(c *job.Config) error {
	metric := c.Checkpoint.Best.Metric
	switch {
	case metric == nil:
	case (*metric == "val_reward" || *metric == "val_accuracy") && !c.Rewards.Any():
		return usage.Errorf("checkpoint.best.metric=%s: no term of rewards has a weight to score answers with (rewards.vqa.weight=1, "+
			"…)", *metric)
	case *metric == "val_accuracy" && c.Rewards.VQA.Weight == 0 && c.Rewards.Accuracy.Weight == 0:
		return usage.Errorf("checkpoint.best.metric=%s: only rewards.vqa and rewards.accuracy say how often an answer is right, and "+
			"neither has a weight", *metric)
	}
	return nil
}

// with returns the samples of a set that hold what who needs. The others are counted with their reason and place; more
// of them than data.max_skipped_share are refused, and none says what is wrong where no sample will do.
func (w *textWorkload[P]) with(who string, set *conversation.Set, need conversation.Need, none string) (*conversation.Set, error) {
	if w.used[who] != nil {
		return w.used[who], nil
	}
	out, skipped, err := set.With(need)
	if err != nil {
		return nil, err
	}
	lost, said := 0, []string{}
	for _, s := range skipped {
		w.skipped[who+": "+s.Reason] = s
		lost += s.Count
		said = append(said, s.String())
	}
	if out.Len() == 0 {
		return nil, usage.Errorf("%s: of %d samples it would leave out %s", none, set.Len(), strings.Join(said, ", "))
	}
	if limit := w.job.Config.Data.MaxSkippedShare; float64(lost) > limit*float64(set.Len()) {
		return nil, usage.Errorf("data.name=%s: %s can use %d of %d samples, and would leave out %s; data.max_skipped_share=%g allows "+
			"%.3g %%",
			w.bundle.Name, who, out.Len(), set.Len(), strings.Join(said, ", "), limit, 100*limit)
	}
	w.used[who] = out
	return out, nil
}

// source is a set as the policy reads it.
func (w *textWorkload[P]) source(set *conversation.Set) *prompts.Source[P] {
	if w.sources[set] == nil {
		text := w.text
		if set == w.bundle.Demos || set == w.demos {
			text.MaxTokens = math.MaxInt // nobody samples there
		}
		w.sources[set] = prompts.New(w.ctx, set.Name, set, w.render, text, w.rewards)
	}
	return w.sources[set]
}

// probe reads the first samples of each set and scores their references, so that a missing part, answer
// or scorer shows before anything is trained.
func (w *textWorkload[P]) probe() error {
	probed := 256
	if r := w.job.Config.Rewards; r.External.Weight != 0 || r.Judge.Weight != 0 || r.Points.Weight != 0 {
		probed = 4 // a scorer of the user's may take seconds a sample
	}
	for _, set := range []*conversation.Set{w.bundle.Train, w.bundle.Val, w.bundle.Eval} {
		if set.Len() == 0 {
			continue
		}
		src := w.source(set)
		queries := stat.Indices(min(probed, set.Len()))
		for _, q := range queries[:min(4, len(queries))] {
			if _, err := src.Prompt(q); err != nil {
				return err
			}
		}
		if w.rewards != nil {
			if err := src.Score(src.Recorded(queries)); err != nil {
				return usage.Errorf("%v", err)
			}
		}
		several := func(q int) bool { s, err := set.Sample(q); return err != nil || len(s.Answers) > 1 }
		if w.job.Config.Rewards.VQA.Weight != 0 && !slices.ContainsFunc(queries, several) {
			w.job.Log.Warnf("rewards.vqa leaves each annotator out once, and the first %d records of %s have one answer each: it gives them 0, "+
				"whatever is said (rewards.accuracy compares with one answer)", len(queries), set.Name)
		}
		mute := func(q int) bool {
			s, err := set.Sample(q)
			return err == nil && !text.RougeHas(text.Answer(s.Reference))
		}
		if w.job.Config.Rewards.Rouge.Weight == 0 {
			continue
		}
		if n := list.Count(queries, mute); n > 0 {
			w.job.Log.Warnf("rewards.rouge: the targets of %d of the first %d records of %s have no word of ASCII letters or digits, which alone "+
				"ROUGE counts: they give 0, whatever is said", n, len(queries), set.Name)
		}
	}
	return nil
}

// warnOfCuts says how many targets are longer than a completion may be: they are imitated cut, without an end.
func (w *textWorkload[P]) warnOfCuts(phase string, src *prompts.Source[P]) {
	const looked = 256
	first := stat.Indices(min(looked, src.Len()))
	b := src.Recorded(first)
	cut := list.Count(first, func(i int) bool { return slices.Contains(b.Truncated[i*b.G:(i+1)*b.G], true) })
	if cut > 0 {
		w.job.Log.Warnf("%s: %d of the first %d samples have a target longer than %s=%d: it is imitated cut, without an end", phase,
			cut, len(first), w.limit, src.MaxTokens())
	}
}

func (w *textWorkload[P]) Policy() selector.Policy { return w.policy }

func (w *textWorkload[P]) splits() []evaluated[*conversation.Set] {
	return splits(w.bundle.Val, w.bundle.EvalName, w.bundle.Eval, w.seen)
}

// Demos are the demonstrations, of any length; without any, Beams.
func (w *textWorkload[P]) Demos(phase string) (selector.Source, error) {
	if w.bundle.Demos == nil {
		return w.Beams(phase)
	}
	return w.imitated(phase, w.bundle.Demos)
}

// Beams are the recorded completions of the training samples, of those without any the target.
func (w *textWorkload[P]) Beams(phase string) (selector.Source, error) {
	return w.imitated(phase, w.bundle.Train)
}

// imitated is a source of the samples that have something to imitate.
func (w *textWorkload[P]) imitated(phase string, all *conversation.Set) (selector.Source, error) {
	set, err := w.with(phase, all, conversation.Target,
		fmt.Sprintf("schedule: phase %s imitates completions, and no record has one (a last assistant turn, answers, or "+
			"completions)", phase))
	if err != nil {
		return nil, err
	}
	if all == w.bundle.Demos {
		w.demos = set
	}
	w.warnOfCuts(phase, w.source(set))
	return w.source(set), nil
}

// Records are the recorded completions with rewards.
func (w *textWorkload[P]) Records(phase string) (selector.Source, error) {
	set, err := w.with(phase, w.bundle.Train, conversation.Group,
		fmt.Sprintf("schedule: phase %s needs groups of recorded completions, and no record has two: %s.rollout=online samples "+
			"them", phase, phase))
	if err != nil {
		return nil, err
	}
	return w.source(set), nil
}

// Online are the training samples with rewards for new completions.
func (w *textWorkload[P]) Online(phase string) (selector.Source, error) {
	if w.rewards == nil {
		return nil, usage.Errorf("schedule: phase %s samples new completions, and no term of rewards has a weight "+
			"(rewards.rouge.weight=1, rewards.vqa.weight=1, …)", phase)
	}
	src, c := w.source(w.bundle.Train), w.job.Config
	if c.Control != "none" {
		src = src.Controlled(c.Control, c.Seed, c.Rewards.Answer)
	}
	return src, nil
}

func (w *textWorkload[P]) PhasesData() phases.Data {
	c := w.job.Config
	out := phasesData(c, c.SFT.Average)
	out.Val, out.EvalName = w.source(w.bundle.Val), w.bundle.EvalName
	out.Shots, out.ShotsKey, out.EvalBatch = w.text.MaxTokens, w.limit, c.Data.BatchSize
	if w.bundle.Eval.Len() > 0 {
		out.Eval = w.source(w.bundle.Eval)
	}
	if w.seen != nil {
		out.Train = w.source(w.seen)
	}
	return out
}

func (w *textWorkload[P]) Summary() record.DataSummary {
	b := w.bundle
	out := record.DataSummary{Name: b.Name, Synthetic: b.Synthetic, Notice: b.Notice, Fingerprint: b.Fingerprint,
		EvalName: b.EvalName, Validated: w.validated, Counts: maps.Clone(b.Counts),
		Skipped: map[string]int{}, SkippedAt: map[string]string{}, UnknownKeys: unknownKeys(b.Unknown)}
	if w.asked == "" && b.Eval.Len() > 0 {
		if w.asked, w.sketch = b.Eval.Questions(); b.Synthetic {
			w.sketch = nil
		}
	}
	out.EvalDigest, out.EvalSketch = w.asked, w.sketch
	maps.Copy(out.Skipped, b.Skipped)
	maps.Copy(out.SkippedAt, b.SkippedAt)
	for why, s := range w.skipped {
		out.Skipped[why], out.SkippedAt[why] = s.Count, s.Where
	}
	return out
}

// Asked finds a training sample by its id, for readers of completions.jsonl.
func (w *textWorkload[P]) Asked(query int64) job.Asked {
	set := w.bundle.Train
	for i := range set.Len() {
		if set.ID(i) != query {
			continue
		}
		s, err := set.Sample(i)
		if err != nil {
			break // it was sampled from a moment ago: nothing to say here that training does not
		}
		return job.Asked{Question: strings.TrimSpace(s.Text()), Reference: s.Reference, Answers: s.Answers,
			Pictures: thumbnails(w.job.Dir, s)}
	}
	return job.Asked{}
}

// Baselines scores the most frequent training answer on every question (majority), which needs no picture,
// and the targets themselves (reference), which bound what imitation can reach.
func (w *textWorkload[P]) Baselines() error {
	if w.rewards == nil {
		return nil
	}
	most, err := w.majority()
	if err != nil || most == "" { // prompts alone
		return err
	}
	for _, split := range w.splits() {
		if err := w.baseline(split.name, "majority", split.set, func(conversation.Sample) string { return most }); err != nil {
			return err
		}
		s, err := split.set.Sample(0)
		if err != nil {
			return err
		}
		if s.Reference == "" {
			continue
		}
		if err := w.baseline(split.name, "reference", split.set, func(s conversation.Sample) string { return s.Reference }); err != nil {
			return err
		}
	}
	return nil
}

// majority is the most frequent target of the training samples, the first of the alphabet on ties;
// "" where none has a target.
func (w *textWorkload[P]) majority() (string, error) {
	var said []string
	for i := range min(w.bundle.Train.Len(), corpusSamples) {
		s, err := w.bundle.Train.Sample(i)
		if err != nil {
			return "", err
		}
		if s.Reference != "" {
			said = append(said, s.Reference)
		}
	}
	slices.Sort(said)
	return vqa.Majority(said), nil
}

func (w *textWorkload[P]) baseline(split, name string, set *conversation.Set, answer func(conversation.Sample) string) error {
	src := w.source(set)
	var ids []int64
	var sel beamdata.Selections // without an accuracy where no term says how often an answer is right
	for queries := range selector.Chunks(set.Len(), w.job.Config.Data.BatchSize) {
		b := selector.NewBatch(src, queries, 1, w.text.MaxTokens)
		for i, q := range queries {
			s, err := set.Sample(q)
			if err != nil {
				return err
			}
			tokens := w.text.Encode(answer(s))
			b.Set(i, 0, tokens[:min(len(tokens), b.T)], 0)
			ids = append(ids, set.ID(q))
		}
		acc, err := src.Accuracy(b)
		if err != nil {
			return err
		}
		sel.Reward, sel.Accuracy = append(sel.Reward, b.Rewards...), append(sel.Accuracy, acc...)
	}
	return recordBaseline(w.job, split, name, ids, sel, w.text.MaxTokens)
}

// Examples writes examples.json: what the initial and the best policy answer to a few held-out questions,
// evenly along the change of reward.
func (w *textWorkload[P]) Examples(env *phases.Env, result phases.Result) error {
	set, src := w.bundle.Eval, env.Data.Eval
	if src == nil {
		set, src = w.bundle.Val, env.Data.Val
	}
	if w.rewards == nil {
		return nil
	}
	before, after, err := initialAndBest(env, src, result)
	if err != nil {
		return err
	}
	out := []record.Example{}
	for _, i := range pickExamples(before.Rewards, after.Rewards,
		func(i int) bool { return !slices.Equal(before.Selections[i], after.Selections[i]) }) {
		s, err := set.Sample(i)
		if err != nil {
			return err
		}
		out = append(out, record.Example{Question: strings.TrimSpace(s.Text()), Answer: s.Reference,
			Pictures: thumbnails(w.job.Dir, s), RewardBefore: before.Rewards[i], RewardAfter: after.Rewards[i],
			Before: []record.ItemText{{Answer: w.text.Decode(before.Selections[i])}},
			After:  []record.ItemText{{Answer: w.text.Decode(after.Selections[i])}}})
	}
	return writeExamples(w.job, out)
}
