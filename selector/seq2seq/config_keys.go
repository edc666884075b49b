package seq2seq

import (
	"fulcrum/internal/hffolder"
	"fulcrum/selector/tokens"
)

func t5Keys() hffolder.Keys {
	return hffolder.Keys{
		Of: "config.json of a T5", Class: "T5Config",
		Used: hffolder.Tags(t5File{}, generationFile{}),
		Idle: []string{"dropout_rate", "classifier_dropout", "is_decoder", "n_positions", "output_past"},
		Want: map[string][]string{"is_encoder_decoder": {"true"}},
		Alias: map[string]string{"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers",
			"head_dim": "d_kv"},
	}.EveryConfig()
}

func bartKeys() hffolder.Keys {
	return hffolder.Keys{
		Of: "config.json of a BART", Class: "BartConfig",
		Used: hffolder.Tags(bartFile{}, generationFile{}),
		Idle: []string{"dropout", "attention_dropout", "activation_dropout", "classifier_dropout", "classif_dropout", "encoder_layerdrop",
			"decoder_layerdrop", "is_decoder", "output_past", "extra_pos_embeddings", "gradient_checkpointing"},
		Want: map[string][]string{"is_encoder_decoder": {"true"}, "tie_word_embeddings": {"true"},
			// switches of BART's relatives
			"normalize_before": {"false"}, "normalize_embedding": {"true"}, "add_final_layer_norm": {"false"},
			"static_position_embeddings": {"false"}, "add_bias_logits": {"false"}},
		Alias: map[string]string{"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads",
			"num_hidden_layers": "encoder_layers"},
	}.EveryConfig()
}

// Keys says what becomes of the keys of a folder's config.json and generation_config.json.
func Keys() []hffolder.Keys {
	return []hffolder.Keys{t5Keys(), bartKeys(), tokens.GenerationKeys(Kind)}
}
