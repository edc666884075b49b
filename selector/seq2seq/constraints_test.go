package seq2seq

import (
	"slices"
	"testing"

	"fulcrum/selector/tokens"
)

// TestConstraints: what generation_config.json may forbid is forbidden as transformers 5.23 does it, on the host and where decoding
// could be on the device. Of the first source of the fixtures:
//
//	m.generate(torch.tensor([source]), max_new_tokens=12, do_sample=False, use_cache=False, eos_token_id=END, …)[0].tolist()[1:]
func TestConstraints(t *testing.T) {
	type constraints = tokens.Constraints
	for _, tc := range []struct {
		model string
		end   int64
		name  string
		c     constraints
		first []int64 // forced_bos_token_id
		want  []int64
	}{
		{"tiny_bart", 193, "none", constraints{}, nil, []int64{4, 4, 4, 193}},
		{"tiny_bart", 193, "no_repeat_ngram_size=1", constraints{NoRepeat: 1}, nil, []int64{4, 241, 193}},
		{"tiny_bart", 193, "no_repeat_ngram_size=2", constraints{NoRepeat: 2}, nil, []int64{4, 4, 193}},
		{"tiny_bart", 193, "min_new_tokens=7", constraints{MinNewTokens: 7}, nil, []int64{4, 4, 4, 4, 241, 220, 4, 193}},
		{"tiny_bart", 193, "min_length=7", constraints{MinLength: 7}, nil, []int64{4, 4, 4, 4, 241, 220, 193}},
		{"tiny_bart", 193, "suppress_tokens=[4]", constraints{Suppress: []int64{4, 999999}}, nil,
			[]int64{49, 246, 246, 291, 231, 220, 306, 193}},
		{"tiny_bart", 193, "begin_suppress_tokens=[4]", constraints{BeginSuppress: []int64{4}}, nil,
			[]int64{49, 4, 4, 4, 4, 4, 4, 49, 4, 4, 4, 49}},
		{"tiny_bart", 193, "bad_words_ids of several tokens", constraints{BadWords: [][]int64{{4, 4}, {4, 4, 4}}}, nil,
			[]int64{4, 241, 193}},
		{"tiny_bart", 193, "bad_words_ids leave the end token", constraints{BadWords: [][]int64{{4}, {193}}}, nil,
			[]int64{49, 246, 246, 291, 231, 220, 306, 193}},
		{"tiny_bart", 193, "begin_suppress_tokens behind a forced one", constraints{BeginSuppress: []int64{4}}, []int64{9},
			[]int64{9, 221, 221, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
		{"tiny_t5", 39, "none", constraints{}, nil, []int64{264, 341, 361, 39}},
		{"tiny_t5", 39, "min_length=7", constraints{MinLength: 7}, nil, []int64{264, 341, 361, 149, 76, 29, 76, 29, 228, 8, 130, 8}},
		{"tiny_t5", 39, "suppress_tokens", constraints{Suppress: []int64{264, 361}}, nil,
			[]int64{200, 345, 173, 314, 307, 163, 307, 163, 307, 307, 307, 163}},
		{"tiny_t5", 39, "bad_words_ids", constraints{BadWords: [][]int64{{341, 361}, {264, 341, 361}}}, nil,
			[]int64{264, 341, 62, 361, 149, 76, 29, 31, 130, 151, 130, 261}},
	} {
		m := openTiny(t, tc.model, nil)
		source := unpadded(t, fixture(t, tc.model+".forward"))[:1]
		for _, onDevice := range []bool{false, true} {
			opt := greedy(12)
			opt.IgnoreEOS, opt.EOS, opt.Constraints, opt.First, opt.OnDevice = false, []int64{tc.end}, tc.c, append([]int64{}, tc.first...), onDevice
			out, err := m.Generate(source, 1, opt)
			if err != nil {
				t.Fatal(err)
			}
			if got := out[0][0].IDs; !slices.Equal(got, tc.want) {
				t.Errorf("%s, %s: %v, want %v", tc.model, tc.name, got, tc.want)
			}
		}
	}
	m := openTiny(t, "tiny_t5", nil)
	opt := greedy(3)
	for id := range int64(m.cfg.Vocab) {
		opt.Suppress = append(opt.Suppress, id)
	}
	if _, err := m.Generate([][]int64{{5, 1}}, 1, opt); err == nil {
		t.Error("every token is suppressed: no error")
	}
}

// TestPublishedConfigs: the files of published models are read, and what they ask for that is not done here is known by name.
func TestPublishedConfigs(t *testing.T) {
	const cnn = `{"_num_labels": 3, "activation_dropout": 0.0, "activation_function": "gelu", "add_final_layer_norm": false,
		"architectures": ["BartForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 0, "classif_dropout": 0.0,
		"classifier_dropout": 0.0, "d_model": 1024, "decoder_attention_heads": 16, "decoder_ffn_dim": 4096, "decoder_layerdrop": 0.0,
		"decoder_layers": 12, "decoder_start_token_id": 2, "dropout": 0.1, "early_stopping": true, "encoder_attention_heads": 16,
		"encoder_ffn_dim": 4096, "encoder_layerdrop": 0.0, "encoder_layers": 12, "eos_token_id": 2, "force_bos_token_to_be_generated": true,
		"forced_bos_token_id": 0, "forced_eos_token_id": 2, "gradient_checkpointing": false, "id2label": {"0": "LABEL_0"}, "init_std": 0.02,
		"is_encoder_decoder": true, "label2id": {"LABEL_0": 0}, "length_penalty": 2.0, "max_length": 142, "max_position_embeddings": 1024,
		"min_length": 56, "model_type": "bart", "no_repeat_ngram_size": 3, "normalize_before": false, "num_beams": 4, "num_hidden_layers": 12,
		"output_past": true, "pad_token_id": 1, "prefix": " ", "scale_embedding": false, "task_specific_params": {"summarization":
		{"num_beams": 4}}, "transformers_version": "4.7.0.dev0", "use_cache": true, "vocab_size": 50264}`
	const t5 = `{"architectures": ["T5ForConditionalGeneration"], "d_ff": 2048, "d_kv": 64, "d_model": 512, "decoder_start_token_id": 0,
		"dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0, "is_encoder_decoder": true, "layer_norm_epsilon": 1e-06,
		"model_type": "t5", "n_positions": 512, "num_heads": 8, "num_layers": 6, "output_past": true, "pad_token_id": 0,
		"relative_attention_num_buckets": 32, "task_specific_params": {"summarization": {"num_beams": 4}}, "use_cache": true,
		"vocab_size": 32128}`
	const flan = `{"architectures": ["T5ForConditionalGeneration"], "d_ff": 1024, "d_kv": 64, "d_model": 512, "decoder_start_token_id": 0,
		"dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "is_gated_act": true,
		"initializer_factor": 1.0, "is_encoder_decoder": true, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512,
		"num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "output_past": true, "pad_token_id": 0,
		"relative_attention_max_distance": 128, "relative_attention_num_buckets": 32, "tie_word_embeddings": false,
		"transformers_version": "4.23.1", "use_cache": true, "vocab_size": 32128}`
	for _, tc := range []struct {
		name, config, generation string
		refused, asked           []string
	}{
		{"bart-large-cnn", cnn, `{"_from_model_config": true, "bos_token_id": 0, "decoder_start_token_id": 2, "early_stopping": true,
			"eos_token_id": 2, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "length_penalty": 2.0, "max_length": 142, "min_length": 56,
			"no_repeat_ngram_size": 3, "num_beams": 4, "pad_token_id": 1, "transformers_version": "4.27.0.dev0"}`, []string{"num_beams=4"},
			[]string{"min_length=56", "no_repeat_ngram_size=3", "num_beams=4"}},
		{"the same before generation_config.json", cnn, "", []string{"num_beams=4"},
			[]string{"min_length=56", "no_repeat_ngram_size=3", "num_beams=4"}},
		{"t5-small", t5, `{"_from_model_config": true, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
			"transformers_version": "4.27.0.dev0"}`, nil, nil},
		{"flan-t5-small", flan, `{"_from_model_config": true, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}`, nil, nil},
		{"every default of save_pretrained", t5, `{"max_length": 20, "min_length": 0, "do_sample": false, "early_stopping": false, "num_beams": 1,
			"num_beam_groups": 1, "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0,
			"repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0,
			"bad_words_ids": null, "num_return_sequences": 1, "output_scores": false, "remove_invalid_values": false,
			"exponential_decay_length_penalty": null, "suppress_tokens": null, "begin_suppress_tokens": null, "epsilon_cutoff": 0.0,
			"eta_cutoff": 0.0, "encoder_repetition_penalty": 1.0, "num_assistant_tokens": 20, "guidance_scale": null, "eos_token_id": 1}`,
			nil, nil},
	} {
		c, err := ParseConfig([]byte(tc.config))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var raw []byte
		if tc.generation != "" {
			raw = []byte(tc.generation)
		}
		g, err := c.parseGeneration(raw)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		var refused []string
		for _, r := range g.Refused {
			refused = append(refused, r.String())
		}
		if !slices.Equal(refused, tc.refused) || !slices.Equal(g.Asked(), tc.asked) {
			t.Errorf("%s: refused %v, asked %v, want %v and %v", tc.name, refused, g.Asked(), tc.refused, tc.asked)
		}
	}
}
