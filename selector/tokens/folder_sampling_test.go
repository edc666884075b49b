package tokens_test

import (
	"slices"
	"strings"
	"testing"

	"fulcrum/selector/tokens"
)

// TestFolderSampling: every key of generation_config.json that changes what transformers draws is used or refused by name, and left out
// where it is told to be.
func TestFolderSampling(t *testing.T) {
	for key, value := range map[string]string{"num_beams": "4", "num_beam_groups": "2", "diversity_penalty": "0.5", "constraints": "[1]",
		"force_words_ids": "[[1]]", "typical_p": "0.9", "epsilon_cutoff": "3e-4", "eta_cutoff": "3e-4", "top_h": "0.4", "penalty_alpha": "0.6",
		"dola_layers": `"high"`, "encoder_repetition_penalty": "1.2", "encoder_no_repeat_ngram_size": "3",
		"exponential_decay_length_penalty": "[5, 1.2]", "sequence_bias": "[[[7], -10.0]]", "guidance_scale": "1.5",
		"watermarking_config": `{"bias": 2}`, "token_healing": "true", "stop_strings": `["."]`, "max_time": "1", "num_return_sequences": "2",
		"cache_implementation": `"quantized"`} {
		s, err := tokens.ParseSampling([]byte(`{"do_sample": true, "top_p": 0.5, "` + key + `": ` + value + `}`))
		if err != nil || len(s.Refused) != 1 || s.Refused[0].Key != key || !slices.Equal(s.Asked(), []string{key + "=" + value}) {
			t.Errorf("%s: %v, %v, asked %v", key, s.Refused, err, s.Asked())
			continue
		}
		if s, err = s.Without([]string{key}); err != nil || len(s.Refused) != 0 || len(s.Asked()) != 0 || *s.TopP != 0.5 {
			t.Errorf("without %s: %+v, %v", key, s, err)
		}
	}
	s, err := tokens.ParseSampling([]byte(`{"min_p": 0.1, "suppress_tokens": [7], "begin_suppress_tokens": [8], "min_length": 3,
		"min_new_tokens": 4, "no_repeat_ngram_size": 2, "bad_words_ids": [[1, 2]], "length_penalty": 2.0, "eos_token_id": 1}`))
	c := s.Constraints
	if err != nil || len(s.Refused) > 0 || c.MinP != 0.1 || len(c.Suppress)+len(c.BeginSuppress)+len(c.BadWords) != 3 || c.MinLength != 3 ||
		c.MinNewTokens != 4 || c.NoRepeat != 2 || len(s.Asked()) != 7 {
		t.Errorf("%+v, %v, asked %v", s, err, s.Asked())
	}
	if _, err := s.Without([]string{"eos_token_id"}); err == nil || !strings.Contains(err.Error(), "want one of bad_words_ids, begin_sup") {
		t.Errorf("without the end token: %v", err)
	}
	for text, want := range map[string]string{
		`{"min_p": 1.5}`:              "min_p = 1.5, want a number in [0, 1]",
		`{"bad_words_ids": [[]]}`:     "bad_words_ids has an empty list",
		`{"suppress_tokens": [true]}`: "suppress_tokens: got a JSON bool",
	} {
		if _, err := tokens.ParseSampling([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
