package seq2seq

import (
	"encoding/json"
	"fmt"
	"maps"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/weights"
)

// Vocabulary is what a model made from random weights must know of its tokenizer.
type Vocabulary struct {
	Size     int
	Pad, EOS int64
	BOS      *int64 // nil: none. Where there is one completions begin with it, as BART's do
}

// New returns a small T5 or BART with random weights, all of them trained: sizes from options.Scratch. The weights
// depend on seed only.
func New(options Options, vocab Vocabulary, device string, seed int64) (*Model, error) {
	raw, err := options.Scratch.configJSON(vocab)
	if err != nil {
		return nil, err
	}
	cfg, err := ParseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("seq2seq.scratch: %w", err)
	}
	return newScratch(options, cfg, device, seed)
}

func newScratch(options Options, cfg *Config, device string, seed int64) (*Model, error) {
	options.Path, options.Adapter, options.LoRA, options.TuneAll = nil, nil, lora.Options{}, false
	w, err := tokens.Scratch(cfg.layout(options), options.Options, nil, device, func(s torchx.Spec) []float32 {
		return weights.Start(s, cfg.startStd(s), seed)
	})
	if err != nil {
		return nil, err
	}
	return newModel(w, cfg, options, cfg.generation), nil
}

// configJSON returns the config.json that describes these sizes, so that the model can be exported and opened as any
// other. Without generation_config.json it also says how completions begin and end.
func (o ScratchOptions) configJSON(v Vocabulary) ([]byte, error) {
	keys := map[string]any{"vocab_size": v.Size, "d_model": o.Width, "pad_token_id": v.Pad, "eos_token_id": v.EOS,
		"is_encoder_decoder": true, "use_cache": true, "torch_dtype": "float32"}
	switch o.Model {
	case "t5", "t5_v1_1":
		projection := "relu"
		if o.Model == "t5_v1_1" {
			projection = "gated-gelu"
		}
		maps.Copy(keys, map[string]any{
			"architectures": []string{"T5ForConditionalGeneration"}, "model_type": kindT5, "feed_forward_proj": projection,
			"tie_word_embeddings": o.Model == "t5",
			"d_kv":                o.Width / max(1, o.Heads), "d_ff": o.FF, "num_layers": o.Layers, "num_decoder_layers": o.DecoderLayers,
			"num_heads":                      o.Heads,
			"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6,
			"initializer_factor": option.Or(o.InitStd, 1), "dropout_rate": 0.0,
			"decoder_start_token_id": v.Pad,
		})
	case "bart":
		maps.Copy(keys, map[string]any{
			"architectures": []string{"BartForConditionalGeneration"}, "model_type": kindBART, "activation_function": "gelu",
			"scale_embedding": false, "init_std": option.Or(o.InitStd, 0.02),
			"encoder_layers": o.Layers, "encoder_attention_heads": o.Heads, "encoder_ffn_dim": o.FF, "decoder_layers": o.DecoderLayers,
			"decoder_attention_heads": o.Heads, "decoder_ffn_dim": o.FF,
			"max_position_embeddings": o.Positions, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
			"decoder_start_token_id": v.EOS, "bos_token_id": v.BOS, "forced_bos_token_id": v.BOS, "forced_eos_token_id": nil,
		})
	default:
		return nil, fmt.Errorf("seq2seq.scratch.model=%q: want t5, t5_v1_1 or bart", o.Model)
	}
	return json.MarshalIndent(keys, "", "  ")
}
