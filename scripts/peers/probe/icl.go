package main

import (
	"context"
	"encoding/json"
	"time"

	"fulcrum/experiments/icl"
	"fulcrum/experiments/lvlm"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/processor"
)

// scorer opens the model that the job's options name, or the server that Server does.
func (j *Job) scorer(ctx context.Context) (lvlm.Scorer, error) {
	if j.Server != nil {
		opt := lvlm.DefaultOptions()
		if err := json.Unmarshal(j.Server, &opt); err != nil {
			return nil, err
		}
		return lvlm.Open(ctx, opt, nil)
	}
	opt := vl.DefaultOptions()
	opt.LoRA.Enabled = false
	if err := json.Unmarshal(j.Options, &opt); err != nil {
		return nil, err
	}
	model, err := vl.Open(opt, "cpu", 0, nil)
	if err != nil {
		return nil, err
	}
	proc, err := processor.Open(*opt.Path)
	if err != nil {
		return nil, err
	}
	return icl.NewLocal(model, proc, "", icl.LocalOptions{MaxNewTokens: max(j.Tokens, 1), Threads: j.threads})
}

// ask scores the prompts' answers (Do: likelihood) or gives greedy ones (answer), as task=beams does: each time by a model that was
// just opened and remembers no picture.
func (j *Job) ask(a *Answer) error {
	for i := range 1 + j.Repeats {
		seconds, err := j.askOnce(a)
		if err != nil {
			return err
		}
		if i > 0 {
			a.Seconds = append(a.Seconds, seconds)
		}
	}
	return nil
}

func (j *Job) askOnce(a *Answer) (seconds float64, err error) {
	ctx := context.Background()
	scorer, err := j.scorer(ctx)
	if err != nil {
		return 0, err
	}
	defer scorer.Close()
	start := time.Now()
	if j.Do == "answer" {
		said, err := scorer.Answer(ctx, j.Asked)
		seconds, a.Texts = time.Since(start).Seconds(), nil
		for _, reply := range said {
			a.Texts = append(a.Texts, reply.Text)
		}
		return seconds, err
	}
	scores, err := scorer.Score(ctx, j.Asked)
	seconds = time.Since(start).Seconds()
	a.LogP, a.IDs = nil, nil
	for _, s := range scores {
		a.LogP = append(a.LogP, [][]float64{s.LogProbs})
		ids := make([]int64, len(s.Tokens))
		for i, id := range s.Tokens {
			ids[i] = int64(id)
		}
		a.IDs = append(a.IDs, ids)
	}
	return seconds, err
}
