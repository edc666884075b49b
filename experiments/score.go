package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"fulcrum/internal/option"
)

// ScoreOptions configures task=score.
type ScoreOptions struct {
	// prompts and completions: JSON lines {"id", "messages" …, "completion_ids" or "completion"}; "source" or
	// "source_ids" in place of messages for policy=seq2seq
	In *string `koanf:"in"`
	// file to write; null = scores.jsonl in the run folder
	Out *string `koanf:"out"`
	// lines scored at once
	BatchSize int `koanf:"batch_size" range:"[1,inf)"`
}

// DefaultScoreOptions scores eight lines at once.
func DefaultScoreOptions() ScoreOptions { return ScoreOptions{BatchSize: 8} }

// Validate asks for the input.
func (o ScoreOptions) Validate() error {
	if o.In == nil {
		return option.Errorf("in", "task=score needs prompts and completions: score.in=FILE.jsonl")
	}
	return nil
}

// scored is a line of score.out.
type scored struct {
	ID            json.RawMessage `json:"id"`
	CompletionIDs []int64         `json:"completion_ids"`
	LogProbs      []float64       `json:"logprobs"` // nats, temperature 1
	Sum           float64         `json:"sum"`
}

// score runs task=score: the log-probability of every token of given completions.
func score(ctx context.Context, j *job) error {
	o := j.cfg.Score
	if err := linesOnly("score.in", *o.In); err != nil {
		return err
	}
	model, err := openTextModel(j)
	if err != nil {
		return err
	}
	defer model.Free()
	if j.cfg.DryRun {
		j.logf("dry_run: the model loads; nothing was scored")
		return nil
	}
	t := &textTask{job: j, name: "score", in: *o.In, out: outOr(o.Out, j.dir, "scores.jsonl"), batch: o.BatchSize, model: model,
		parse: func(req *request) error {
			ids, err := completionOf(req.line, model)
			req.ids = ids
			if c, ok := model.(completionChecker); ok && err == nil {
				err = c.CheckCompletion(ids)
			}
			return err
		},
		answer: func(_ context.Context, requests []request, _ int) ([]any, error) {
			completions := make([][]int64, len(requests))
			for i, req := range requests {
				completions[i] = req.ids
			}
			logp, err := model.LogProbs(promptsOf(requests), completions)
			if err != nil {
				return nil, err
			}
			lines := make([]any, len(requests))
			for i, req := range requests {
				sum := 0.0
				for _, x := range logp[i] {
					sum += x
				}
				lines[i] = scored{req.line.ID, req.ids, logp[i], sum}
			}
			return lines, nil
		}}
	return t.do(ctx)
}

// completionChecker is a textModel that cannot score every completion.
type completionChecker interface{ CheckCompletion(ids []int64) error }

// completionOf is the completion of a line as token ids.
func completionOf(line promptLine, model textModel) ([]int64, error) {
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
