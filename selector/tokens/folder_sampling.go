package tokens

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// FolderSampling holds the sampling keys of a folder's generation_config.json; nil or empty for missing keys.
type FolderSampling struct {
	DoSample          *bool    `json:"do_sample"`
	Temperature       *float64 `json:"temperature"`
	TopP              *float64 `json:"top_p"`
	TopK              *int     `json:"top_k"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
	Constraints

	Refused []hffolder.Refusal `json:"-"` // keys that are not supported
	said    map[string]json.RawMessage
}

// Ending is what a folder's generation_config.json, or else its config.json, says of how completions are drawn and where they end.
type Ending struct {
	FolderSampling
	EOS       []int64 // any of these ends a completion
	ForcedEOS []int64 // the last token, where the length limit is reached, is one of these; none = free
}

// EndingKeys are the keys of Ending that hold token ids.
type EndingKeys struct {
	EOS       json.RawMessage `json:"eos_token_id"`
	ForcedEOS json.RawMessage `json:"forced_eos_token_id"`
}

// Parse reads the ids, and of raw, the file that they are from, the keys of sampling.
func (k EndingKeys) Parse(raw []byte) (e Ending, err error) {
	if e.EOS, err = ParseIDs(k.EOS); err != nil {
		return e, fmt.Errorf("eos_token_id: %w", err)
	}
	if e.ForcedEOS, err = ParseIDs(k.ForcedEOS); err != nil {
		return e, fmt.Errorf("forced_eos_token_id: %w", err)
	}
	e.FolderSampling, err = ParseSampling(raw)
	return e, err
}

// GenerationKeys lists the used, idle and refused keys of generation_config.json.
func GenerationKeys(policy string) hffolder.Keys {
	k := hffolder.Keys{
		Of: "generation_config.json", Class: "GenerationConfig",
		Used: append(hffolder.Tags(FolderSampling{}), "eos_token_id", "pad_token_id", "forced_eos_token_id"),
		Idle: []string{
			"max_length", "max_new_tokens", // generate.max_new_tokens is the length, always
			"length_penalty", "early_stopping", // of beams
			"bos_token_id", "use_cache", "cache_config", "max_cache_len", "low_memory", "prefill_chunk_size", "compile_config",
			"disable_compile", "continuous_batching_config", "renormalize_logits", "remove_invalid_values", "return_dict_in_generate",
			"output_attentions", "output_hidden_states", "output_scores", "output_logits",
			"use_mtp", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", // drafts draw from the same distribution
			"assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit",
			"assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight", "speculation_type",
			"_from_model_config", "transformers_version", "_commit_hash",
		},
		Want: map[string][]string{
			"num_beams": {"1"}, "num_beam_groups": {"1"}, "diversity_penalty": {"0"}, "constraints": nil, "force_words_ids": nil,
			"typical_p": {"1"}, "epsilon_cutoff": {"0"}, "eta_cutoff": {"0"}, "top_h": nil, "penalty_alpha": {"0"}, "dola_layers": nil,
			"encoder_repetition_penalty": {"1"}, "encoder_no_repeat_ngram_size": {"0"}, "exponential_decay_length_penalty": nil,
			"sequence_bias": {"{}", "[]"}, "guidance_scale": {"1"}, "watermarking_config": nil, "token_healing": {"false"},
			"stop_strings": {"[]"}, "max_time": nil, "num_return_sequences": {"1"},
			"cache_implementation": {`"dynamic"`, `"static"`, `"offloaded"`, `"offloaded_static"`, `"hybrid"`},
		},
	}
	if policy == "seq2seq" {
		k.Used = append(k.Used, "decoder_start_token_id", "forced_bos_token_id")
	} else { // a prompt is more than a start token
		k.Idle = append(k.Idle, "decoder_start_token_id", "forced_bos_token_id")
	}
	return k
}

// ParseSampling reads the sampling keys of generation_config.json, or of a config.json in its place; raw may be nil.
func ParseSampling(raw []byte) (FolderSampling, error) {
	var s FolderSampling
	if raw == nil {
		return s, nil
	}
	if err := jsonwords.Unmarshal(raw, &s); err != nil {
		return s, err
	}
	if err := jsonwords.Unmarshal(raw, &s.said); err != nil {
		return s, err
	}
	if !(s.MinP >= 0 && s.MinP <= 1) {
		return s, fmt.Errorf("min_p = %v, want a number in [0, 1]", s.MinP)
	}
	if slices.ContainsFunc(s.BadWords, func(w []int64) bool { return len(w) == 0 }) {
		return s, fmt.Errorf("bad_words_ids has an empty list, want token ids")
	}
	var err error
	s.Refused, err = GenerationKeys("").Refused(raw)
	return s, err
}

// Without returns s without some keys, which the folder must have.
func (s FolderSampling) Without(keys []string) (FolderSampling, error) {
	if len(keys) == 0 {
		return s, nil
	}
	known := append(hffolder.Tags(FolderSampling{}), slices.Collect(maps.Keys(GenerationKeys("").Want))...)
	said := maps.Clone(s.said)
	maps.DeleteFunc(said, func(key string, _ json.RawMessage) bool { return !slices.Contains(known, key) })
	names := slices.Sorted(maps.Keys(said))
	for _, key := range keys {
		if !slices.Contains(names, key) {
			return s, registry.Unknown("key of the model's generation_config.json:", key, names)
		}
		delete(said, key)
	}
	raw, err := jsonwords.Marshal(said)
	if err != nil {
		return s, err
	}
	return ParseSampling(raw)
}

// Asked lists, as key=value, the folder's settings that SamplingOptions cannot hold.
func (s FolderSampling) Asked() []string {
	asked := list.Map(s.Refused, hffolder.Refusal.String)
	c := s.Constraints
	for _, has := range []struct {
		key string
		on  bool
	}{{"bad_words_ids", len(c.BadWords) > 0}, {"begin_suppress_tokens", len(c.BeginSuppress) > 0}, {"min_length", c.MinLength > 0},
		{"min_new_tokens", c.MinNewTokens > 0}, {"min_p", c.MinP > 0}, {"no_repeat_ngram_size", c.NoRepeat > 0},
		{"suppress_tokens", len(c.Suppress) > 0}} {
		if has.on {
			asked = append(asked, hffolder.Refusal{Key: has.key, Value: hffolder.Short(s.said[has.key])}.String())
		}
	}
	slices.Sort(asked)
	return asked
}

// Constraints forbid next tokens, as transformers' logits processors of these names do. The zero value forbids nothing.
type Constraints struct {
	MinP          float64   `json:"min_p"`                 // of sampling: tokens less probable than this share of the likeliest one never come
	Suppress      []int64   `json:"suppress_tokens"`       // never come
	BeginSuppress []int64   `json:"begin_suppress_tokens"` // never come first, behind a forced token
	MinLength     int       `json:"min_length"`            // no end before so many tokens, those before the completion included
	MinNewTokens  int       `json:"min_new_tokens"`        // no end before so many tokens of the completion
	NoRepeat      int       `json:"no_repeat_ngram_size"`  // no sequence of this length comes twice, in prompt and completion; 0 = off
	BadWords      [][]int64 `json:"bad_words_ids"`         // lists of tokens that never come in this order
}

func (c *Constraints) any() bool {
	return c.MinP > 0 || c.MinLength > 0 || c.MinNewTokens > 0 || c.NoRepeat > 0 ||
		len(c.Suppress)+len(c.BeginSuppress)+len(c.BadWords) > 0
}

// banned lists the tokens of a vocabulary that may not follow a sequence. Each rule is that of transformers' processor of that name.
func (o *GenerateOptions) banned(s *Sequence, vocabulary int) []int64 {
	if !o.Constraints.any() {
		return o.Suppressed
	}
	out := slices.Concat(o.Suppressed, o.Suppress)
	if begin := min(len(o.First), 1); len(s.IDs) == begin {
		out = append(out, o.BeginSuppress...)
	}
	all := slices.Concat(s.Before, s.IDs)
	if len(all) < o.MinLength || len(s.IDs) < o.MinNewTokens {
		out = append(out, o.EOS...)
	}
	if n := o.NoRepeat; n > 0 && len(all)+1 >= n {
		end := all[len(all)+1-n:]
		for i := 0; i+n <= len(all); i++ {
			if slices.Equal(all[i:i+n-1], end) {
				out = append(out, all[i+n-1])
			}
		}
	}
	for _, word := range o.BadWords {
		n := len(word) - 1
		ends := n == 0 || n < len(all) && slices.Equal(all[len(all)-n:], word[:n]) // as in transformers, a word as long as the text is ignored
		if ends && !(n == 0 && slices.Contains(o.EOS, word[0])) {
			out = append(out, word[n])
		}
	}
	return slices.DeleteFunc(out, func(id int64) bool { return id < 0 || id >= int64(vocabulary) })
}
