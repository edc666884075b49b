package tasks

import (
	"context"
	"encoding/json"
	"path/filepath"

	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
)

func generateTask() job.Task {
	return job.Task{Run: generate, Policy: true, Sections: []string{"init"}, Options: new(workload.DefaultGenerateOptions()),
		On: func(c *job.Config) string { return *generateOf(c).In }}
}

func generateOf(c *job.Config) *workload.GenerateOptions {
	return job.Own[workload.GenerateOptions](c, "generate")
}

// generated is a line of generate.out.
type generated struct {
	ID            json.RawMessage `json:"id"`
	PromptTokens  int             `json:"prompt_tokens"`
	CompletionIDs []int64         `json:"completion_ids"`
	Completion    string          `json:"completion"`
	FinishReason  string          `json:"finish_reason"` // stop or length
}

func generate(ctx context.Context, j *job.Job) error {
	o := generateOf(j.Config)
	t := &textTask{job: j, name: "generate", in: *o.In, out: option.Or(o.Out, filepath.Join(j.Dir, "generations.jsonl")), batch: o.BatchSize,
		generate: o}
	t.answer = func(_ context.Context, requests []request, first int) ([]any, error) {
		answers, err := t.model.Generate(promptsOf(requests), *o, j.Config.Seed, first)
		if err != nil {
			return nil, err
		}
		var lines []any
		for i, req := range requests {
			for _, c := range answers[i] {
				finish := "stop"
				if c.Cut {
					finish = "length"
				}
				lines = append(lines, generated{req.line.ID, req.tokens, c.IDs, t.model.Decode(c.IDs), finish})
			}
		}
		return lines, nil
	}
	return t.do(ctx)
}

func promptsOf(requests []request) []any {
	return list.Map(requests, func(r request) any { return r.prompt })
}
