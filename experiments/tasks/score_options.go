package tasks

import (
	"fulcrum/internal/option"
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

// Validate asks for the input.
func (o ScoreOptions) Validate() error {
	if o.In == nil {
		return option.Errorf("in", "task=score needs prompts and completions: score.in=FILE.jsonl")
	}
	return nil
}
