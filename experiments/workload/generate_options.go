package workload

import (
	"fulcrum/internal/option"
)

// GenerateOptions configures task=generate. What is null comes from the model's generation_config.json,
// else from HuggingFace's defaults.
type GenerateOptions struct {
	// prompts: JSON lines {"id", "messages", "images", "videos"}; for policy=seq2seq {"id", "source"}, or
	// "source_ids"
	In *string `koanf:"in"`
	// file to write; null = generations.jsonl in the run folder
	Out *string `koanf:"out"`
	// longest completion, in tokens
	MaxNewTokens int `koanf:"max_new_tokens" range:"[1,inf)" also:"max_tokens,max_length"`
	// sample; false = greedy; null = as the model's generation_config.json says
	DoSample *bool `koanf:"do_sample"`
	// go on after the end-of-sequence token, up to max_new_tokens, and force no first or last token
	IgnoreEOS bool `koanf:"ignore_eos"`
	// of sampling
	Temperature *float64 `koanf:"temperature" range:"(0,inf)"`
	// sample from the most likely tokens that hold this much probability
	TopP *float64 `koanf:"top_p" range:"(0,1]"`
	// sample from the k most likely tokens; 0 = all
	TopK *int `koanf:"top_k" range:"[0,inf)"`
	// divides positive and multiplies negative logits of tokens seen before
	RepetitionPenalty *float64 `koanf:"repetition_penalty" range:"(0,inf)"`
	// keys of the model's generation_config.json that do not count here, num_beams say
	Without []string `koanf:"without"`
	// completions for each prompt
	NumReturn int `koanf:"num_return_sequences" range:"[1,inf)"`
	// lines worked on at once
	BatchSize int `koanf:"batch_size" range:"[1,inf)"`
}

// DefaultGenerateOptions returns one completion of at most 128 tokens for each prompt.
func DefaultGenerateOptions() GenerateOptions {
	return GenerateOptions{MaxNewTokens: 128, NumReturn: 1, BatchSize: 8}
}

// Validate asks for the input.
func (o GenerateOptions) Validate() error {
	if o.In == nil {
		return option.Errorf("in", "task=generate needs prompts: generate.in=FILE.jsonl")
	}
	return nil
}
