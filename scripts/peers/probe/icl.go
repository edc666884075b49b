package main

import (
	"context"
	"encoding/json"

	"fulcrum/experiments/icl"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/processor"
)

// ask scores the prompts' answers (Do: likelihood) or gives greedy ones (answer), as task=beams does.
func (j *Job) ask(a *Answer) error {
	opt := vl.DefaultOptions()
	opt.LoRA.Enabled = false
	if err := json.Unmarshal(j.Options, &opt); err != nil {
		return err
	}
	model, err := vl.Open(opt, "cpu", 0, nil)
	if err != nil {
		return err
	}
	proc, err := processor.Open(*opt.Path)
	if err != nil {
		return err
	}
	local, err := icl.NewLocal(model, proc, "", icl.LocalOptions{MaxNewTokens: max(j.Tokens, 1), Threads: j.threads})
	if err != nil {
		return err
	}
	defer local.Close()
	ctx := context.Background()
	return j.timed(a, func() error {
		if j.Do == "answer" {
			a.Texts, err = local.Answer(ctx, j.Asked)
			return err
		}
		scores, err := local.Score(ctx, j.Asked)
		a.LogP, a.IDs = nil, nil
		for _, s := range scores {
			a.LogP = append(a.LogP, [][]float64{s.LogProbs})
			ids := make([]int64, len(s.Tokens))
			for i, id := range s.Tokens {
				ids[i] = int64(id)
			}
			a.IDs = append(a.IDs, ids)
		}
		return err
	})
}
