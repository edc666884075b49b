package beamdata

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"fulcrum/beamdata/shapes"
	"fulcrum/rewardutil/recorded"
)

// shapes loads the built-in synthetic set: the same structures as okvqa's files, made in memory.
func (l *loader) shapes() error {
	b := l.bundle
	data, err := shapes.Generate(l.opt.Shapes)
	if err != nil {
		return err
	}
	l.table = NewTable(len(data.Items), data.Dim, data.Embeddings)
	l.build = newBuilder(l.opt, l.table.Rows, b.Counts)
	b.Items = shapesItems(data.Items, l.opt.Cluster)
	l.prior = shapesPrior(data.Prior)
	b.Shots = data.Options.Shots
	set := func(name string, queries []shapes.Query, records bool) (*Set, error) {
		r := shapesReader(queries)
		l.addAnswers(r)
		f, err := l.shapesFile(queries, data.Options.Shots, records)
		if err != nil {
			return nil, err
		}
		return l.readerSet(name, r, f)
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
	b.EvalName = shapes.Dev
	b.Synthetic = true
	b.Notice = "synthetic data: small rendered scenes with generated questions and answers, made for demonstration; give data=okvqa or data=beams for real data"
	return nil
}

// shapesReader makes the reward table of the set's queries.
func shapesReader(queries []shapes.Query) *Reader {
	r := &Reader{path: "data=shapes"}
	for _, q := range queries {
		r.IDs = append(r.IDs, int64(q.Row))
		r.pools = append(r.pools, q.Pool)
		weight := make([]float64, len(q.Score))
		for k, s := range q.Score {
			weight[k] = math.Exp(s)
		}
		r.weight = append(r.weight, weight)
		r.acc = append(r.acc, q.DemoAcc)
		r.weight0 = append(r.weight0, math.Exp(q.PriorScore))
		r.prior0 = append(r.prior0, q.PriorAcc)
		r.top = append(r.top, q.PriorTop)
	}
	return r
}

// shapesFile gives the set's beams, or its recorded groups, the form of a beam file's content.
func (l *loader) shapesFile(queries []shapes.Query, shots int, records bool) (*beamFile, error) {
	f := &beamFile{path: "data=shapes", format: "legacy", shots: shots, start: []int64{0}}
	for _, q := range queries {
		f.ids = append(f.ids, int64(q.Row))
		add := func(positions []int32, reward float64) {
			for _, p := range positions {
				f.picks = append(f.picks, q.Pool[p])
			}
			f.reward = append(f.reward, reward)
		}
		if !records {
			for _, beam := range q.Beams {
				add(beam.Positions, beam.Soft)
			}
			f.start = append(f.start, int64(len(f.reward)))
			continue
		}
		for _, rec := range q.Records {
			t := shapesTrajectory(rec)
			if missing := l.opt.Reward.Missing(t); missing != "" {
				return nil, fmt.Errorf("data=shapes: query %d: no %s, which data.reward.mode=%s wants", q.Row, missing, l.opt.Reward.Mode)
			}
			reward, err := l.opt.Reward.Reward(t)
			if err != nil {
				return nil, fmt.Errorf("data=shapes: query %d: %w", q.Row, err)
			}
			add(rec.Positions, reward)
			f.scores = append(f.scores, t)
			f.method = append(f.method, methodIndex([]byte(rec.Method)))
		}
		f.start = append(f.start, int64(len(f.reward)))
	}
	return f, nil
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

func shapesItems(in []shapes.Item, key string) *Items {
	items := &Items{rows: make([]item, len(in)), key: key}
	for i, x := range in {
		counts := make([]textCount, len(x.Answers))
		for k, a := range x.Answers {
			counts[k] = textCount{a.Answer, int32(a.Count)}
		}
		items.rows[i] = item{split: x.Split, question: x.Question, answer: x.Answer, image: int64(x.Scene), counts: counts}
		if key == "" || key == "image_id" {
			items.rows[i].cluster = strconv.Itoa(x.Scene)
		}
	}
	return items
}

func shapesPrior(p *shapes.Prior) *readerPrior {
	floats := func(in map[string]int) map[string]float64 {
		out := make(map[string]float64, len(in))
		for k, v := range in {
			out[k] = float64(v)
		}
		return out
	}
	out := &readerPrior{N: float64(p.N), All: floats(p.All), ByHead: map[string]map[string]float64{}}
	for head, counts := range p.ByHead {
		out.ByHead[head] = floats(counts)
	}
	return out
}
