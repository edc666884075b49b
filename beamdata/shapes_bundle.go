package beamdata

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/shapes"
	"fulcrum/internal/list"
	"fulcrum/rewardutil/recorded"
)

// shapesData makes the built-in questions about rendered scenes.
func shapesData() Dataset {
	return Dataset{
		Name: "shapes",
		Reads: append([]string{"shapes", "conversations.captions", "reward.mode", "reward.hard_weight", "reward.soft_weight", "reward.rel_weight",
			"reward.alpha", "reward.beta", "reward.correctness_mode", "reward.use_logprob", "reward.levels"}, wordKeys...),
		sets: (*loader).shapes,
		Conversations: func(o Options) (*conversation.Bundle, error) {
			return conversation.Shapes(o.Shapes, o.conversation()), nil
		},
	}
}

// shapes loads the built-in synthetic set: the same structures as okvqa's files, made in memory.
func (l *loader) shapes() error {
	b := l.bundle
	data, err := shapes.Generate(l.opt.Shapes)
	if err != nil {
		return err
	}
	l.table = NewTable(len(data.Items), data.Dim, data.Embeddings)
	b.Items = shapesItems(data.Items)
	l.prior, b.Shots = data.Prior, data.Options.Shots
	set := func(name string, queries []shapes.Query, records bool) (*Set, error) {
		r := shapesReader(queries)
		l.addAnswers(r)
		candidates := make([]Query, len(queries))
		for i, q := range queries {
			if candidates[i], err = l.shapesQuery(q, records); err != nil {
				return nil, err
			}
		}
		return NewSet(name, l.table, data.Options.Shots, candidates, r)
	}
	if b.All, err = set("all", slices.Concat(data.Train, data.Val), false); err != nil {
		return err
	}
	groups, err := set("records", data.Train, true)
	if err != nil {
		return err
	}
	if len(data.Dev) > 0 {
		if b.Eval, err = set(shapes.Dev, data.Dev, false); err != nil {
			return err
		}
	}
	train := func(i int) bool { return i < len(data.Train) }
	b.RCE, b.Records = l.limit(b.All.Filter(train)).named("rce"), l.limit(groups)
	b.Online = b.RCE.named("online")
	b.Val = b.All.Filter(func(i int) bool { return !train(i) }).named("val")
	b.EvalName, b.Synthetic = shapes.Dev, true
	b.Notice = "synthetic data: small rendered scenes with generated questions and answers, made for demonstration; give " +
		"data=okvqa or data=beams for real data"
	return nil
}

func shapesReader(queries []shapes.Query) *Reader {
	r := &Reader{path: "data=shapes"}
	for _, q := range queries {
		r.IDs = append(r.IDs, int64(q.Row))
		r.pools = append(r.pools, q.Pool)
		r.weight = append(r.weight, list.Map(q.Score, math.Exp))
		r.acc = append(r.acc, q.DemoAcc)
		r.weight0 = append(r.weight0, math.Exp(q.PriorScore))
		r.prior0 = append(r.prior0, q.PriorAcc)
		r.top = append(r.top, q.PriorTop)
	}
	return r
}

// shapesQuery returns a query with its beams, or with its recorded group. A candidate that data.pool_size cuts off is
// left out and counted.
func (l *loader) shapesQuery(q shapes.Query, records bool) (Query, error) {
	out := Query{ID: int64(q.Row), Pool: q.Pool}
	if n := l.opt.PoolSize; n != nil {
		out.Pool = q.Pool[:min(*n, len(q.Pool))]
	}
	inPool := func(positions []int32) bool {
		in := int(slices.Max(positions)) < len(out.Pool)
		if !in {
			l.bundle.Counts["candidate_behind_pool_cut"]++
		}
		return in
	}
	if !records {
		for _, beam := range q.Beams {
			if inPool(beam.Positions) {
				out.Candidates, out.Rewards = append(out.Candidates, beam.Positions), append(out.Rewards, beam.Soft)
			}
		}
		return out, nil
	}
	for _, rec := range q.Records {
		t := shapesTrajectory(rec)
		if missing := l.opt.Reward.Missing(t); missing != "" {
			return out, fmt.Errorf("data=shapes: query %d: no %s, which data.reward.mode=%s wants", q.Row, missing, l.opt.Reward.Mode)
		}
		reward, err := l.opt.Reward.Reward(t)
		if err != nil {
			return out, fmt.Errorf("data=shapes: query %d: %w", q.Row, err)
		}
		if inPool(rec.Positions) {
			out.Candidates, out.Rewards = append(out.Candidates, rec.Positions), append(out.Rewards, reward)
			out.Scores, out.Methods = append(out.Scores, t), append(out.Methods, rec.Method)
		}
	}
	return out, nil
}

func shapesTrajectory(rec shapes.Record) recorded.Trajectory {
	var t recorded.Trajectory
	correct := 0.0
	if rec.Accuracy > 0 {
		correct = 1
	}
	t.Set(recorded.Correct, correct)
	t.Set(recorded.AccScore, rec.Accuracy)
	t.Set(recorded.GTProb, rec.Soft)
	if rec.BeamRank >= 0 {
		t.Set(recorded.BeamScore, rec.Soft)
	}
	if !math.IsNaN(rec.LogProb) {
		t.Set(recorded.LogProb, rec.LogProb)
	}
	return t
}

func shapesItems(in []shapes.Item) *Items {
	items := &Items{rows: make([]item, len(in)), file: "data=shapes"}
	for i, x := range in {
		items.rows[i] = item{question: x.Question, answer: x.Answer, image: int64(x.Scene), pictured: true, counts: x.Answers}
	}
	return items
}
