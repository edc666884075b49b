package main

import (
	"context"
	"encoding/json"
	"time"

	"fulcrum/experiments/icl"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/processor"
)

// ask scores the prompts' answers (Do: likelihood) or gives greedy ones (answer), as task=beams does: each time with a model that
// was just opened and remembers no picture.
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
	opt := vl.DefaultOptions()
	opt.LoRA.Enabled = false
	if err := json.Unmarshal(j.Options, &opt); err != nil {
		return 0, err
	}
	model, err := vl.Open(opt, "cpu", 0, nil)
	if err != nil {
		return 0, err
	}
	proc, err := processor.Open(*opt.Path)
	if err != nil {
		return 0, err
	}
	local, err := icl.NewLocal(model, proc, "", icl.LocalOptions{MaxNewTokens: max(j.Tokens, 1), Threads: j.threads})
	if err != nil {
		return 0, err
	}
	defer local.Close()
	ctx, start := context.Background(), time.Now()
	if j.Do == "answer" {
		a.Texts, err = local.Answer(ctx, j.Asked)
		return time.Since(start).Seconds(), err
	}
	scores, err := local.Score(ctx, j.Asked)
	seconds = time.Since(start).Seconds()
	a.LogP = nil
	for _, s := range scores {
		a.LogP = append(a.LogP, [][]float64{s.LogProbs})
	}
	return seconds, err
}
