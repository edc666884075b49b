package tokens

// SamplingOptions says how tokens are drawn. Anything but the defaults draws from another distribution than the one
// that is trained, so ratios are off by as much.
type SamplingOptions struct {
	// longest completion, in tokens
	MaxNewTokens int     `koanf:"max_new_tokens" range:"[1,inf)" also:"max_completion_length,max_tokens,max_length,response_length"`
	Temperature  float64 `koanf:"-"` // of the draw; 0 = greedy. Rollouts have grpo.sample_temperature and rce.sample_temperature
	// draw from the smallest set of tokens with this probability; 1 = all
	TopP float64 `koanf:"top_p" range:"(0,1]"`
	// draw from this many likeliest tokens; 0 = all
	TopK int `koanf:"top_k" range:"[0,inf)"`
	// divides positive and multiplies negative logits of tokens seen before (vl: in prompt or completion, seq2seq: in
	// the completion); 1 = none
	RepetitionPenalty float64 `koanf:"repetition_penalty" range:"(0,inf)"`
}

// DefaultSampling draws completions of at most n tokens from the policy itself.
func DefaultSampling(n int) SamplingOptions {
	return SamplingOptions{MaxNewTokens: n, Temperature: 1, TopP: 1, RepetitionPenalty: 1}
}
