package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/stat"
)

// ScoreOptions configures task=score.
type ScoreOptions struct {
	// prompts and completions: JSON lines {"id", "messages" …, "completion_ids" or "completion"}; "source" or
	// "source_ids" in place of messages for policy=seq2seq
	In *string `koanf:"in"`
	// file to write; null = scores.jsonl in the run folder
	Out *string `koanf:"out"`
	// lines worked on at once
	BatchSize int `koanf:"batch_size" range:"[1,inf)"`
}

func (o ScoreOptions) Validate() error {
	return option.Want(o.In != nil, "in", "task=score needs prompts and completions: score.in=FILE.jsonl")
}

func scoreTask() job.Task {
	return job.Task{Run: score, Policy: true, Sections: []string{"init"}, Options: &ScoreOptions{BatchSize: 8},
		On: func(c *job.Config) string { return *scoreOf(c).In }}
}

func scoreOf(c *job.Config) *ScoreOptions { return job.Own[ScoreOptions](c, "score") }

// scored is a line of score.out.
type scored struct {
	ID            json.RawMessage `json:"id"`
	CompletionIDs []int64         `json:"completion_ids"`
	LogProbs      []float64       `json:"logprobs"` // nats, temperature 1
	Sum           float64         `json:"sum"`
}

// score runs task=score: the log-probability of every token of given completions.
func score(ctx context.Context, j *job.Job) error {
	o := scoreOf(j.Config)
	t := &textTask{job: j, name: "score", in: *o.In, out: option.Or(o.Out, filepath.Join(j.Dir, "scores.jsonl")), batch: o.BatchSize}
	t.parse = func(req *request) error {
		ids, err := completionOf(req.line, t.model)
		req.ids = ids
		if err == nil {
			err = t.model.CheckCompletion(ids)
		}
		return err
	}
	t.answer = func(_ context.Context, requests []request, _ int) ([]any, error) {
		completions := list.Map(requests, func(req request) []int64 { return req.ids })
		logp, err := t.model.LogProbs(promptsOf(requests), completions)
		if err != nil {
			return nil, err
		}
		return list.Make(len(requests), func(i int) any {
			return scored{requests[i].line.ID, requests[i].ids, logp[i], stat.Sum(logp[i])}
		}), nil
	}
	return t.do(ctx)
}

// completionOf is the completion of a line as token ids.
func completionOf(line workload.PromptLine, model workload.TextModel) ([]int64, error) {
	ids := line.CompletionIDs
	switch {
	case ids != nil && line.Completion != nil:
		return nil, errors.New("want completion_ids or completion, got both")
	case ids == nil && line.Completion == nil:
		return nil, errors.New("want completion_ids (token ids) or completion (text)")
	case ids == nil:
		ids = model.Encode(*line.Completion)
	}
	if len(ids) == 0 {
		return nil, errors.New("the completion has no tokens")
	}
	for k, id := range ids {
		if id < 0 || id >= int64(model.VocabSize()) {
			return nil, fmt.Errorf("completion_ids[%d] = %d: want 0 to %d", k, id, model.VocabSize()-1)
		}
	}
	return ids, nil
}
