package vl

import (
	"encoding/json"
	"fmt"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/weights"
)

// Vocabulary is what a model made from random weights must know of its tokenizer.
type Vocabulary struct {
	Size                                            int
	EOS                                             []int64 // what ends a completion; the first one is the chat template's
	Pad                                             int64
	Image, Video, VisionStart, VisionEnd, VisionPad int64
}

// New returns a small model of Qwen2.5-VL's architecture with random weights, all of them trained: sizes from
// options.Scratch. The weights depend on seed only.
func New(options Options, vocab Vocabulary, device string, seed int64) (*Model, error) {
	raw, err := options.Scratch.configJSON(vocab)
	if err != nil {
		return nil, err
	}
	cfg, err := ParseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("vl.scratch: %w", err)
	}
	cfg.EOS = vocab.EOS
	return newScratch(options, cfg, device, seed)
}

func newScratch(options Options, cfg *Config, device string, seed int64) (*Model, error) {
	options.Path, options.Adapter, options.LoRA = nil, nil, lora.Options{}
	generation, err := json.MarshalIndent(map[string]any{"do_sample": false, "eos_token_id": cfg.EOS}, "", "  ")
	if err != nil {
		return nil, err
	}
	w, err := tokens.Scratch(cfg.layout(options), options.Options, generation, device,
		func(s torchx.Spec) []float32 { return weights.Start(s, cfg.InitStd, seed) })
	if err != nil {
		return nil, err
	}
	return newModel(w, cfg, options, GenerationConfig{})
}

// configJSON returns the config.json that describes these sizes, so that the model can be exported and opened as any other.
func (o ScratchOptions) configJSON(v Vocabulary) ([]byte, error) {
	if len(v.EOS) == 0 {
		return nil, fmt.Errorf("vl.scratch: the tokenizer names no token that ends a completion")
	}
	return json.MarshalIndent(map[string]any{
		"architectures": []string{"Qwen2_5_VLForConditionalGeneration"}, "model_type": "qwen2_5_vl", "torch_dtype": "float32",
		"vocab_size": v.Size, "bos_token_id": v.Pad, "pad_token_id": v.Pad, "eos_token_id": v.EOS,
		"image_token_id": v.Image, "video_token_id": v.Video, "vision_start_token_id": v.VisionStart, "vision_end_token_id": v.VisionEnd,
		"vision_token_id": v.VisionPad,
		"hidden_size":     o.HiddenSize, "intermediate_size": o.IntermediateSize, "num_hidden_layers": o.Layers, "max_window_layers": o.Layers,
		"num_attention_heads": o.Heads, "num_key_value_heads": o.KVHeads, "hidden_act": "silu", "rms_norm_eps": 1e-6,
		"rope_theta": o.RopeTheta, "rope_scaling": map[string]any{"type": "mrope", "mrope_section": o.sections()},
		"initializer_range": o.InitStd, "tie_word_embeddings": true, "use_sliding_window": false, "sliding_window": 32768,
		"max_position_embeddings": 32768, "attention_dropout": 0.0, "use_cache": true,
		"vision_config": map[string]any{
			"depth": o.Vision.Depth, "hidden_size": o.Vision.HiddenSize, "intermediate_size": o.Vision.IntermediateSize,
			"num_heads": o.Vision.Heads,
			"in_chans":  3, "out_hidden_size": o.HiddenSize, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2,
			"window_size": o.Vision.Window, "fullatt_block_indexes": o.Vision.FullBlocks, "tokens_per_second": 2, "hidden_act": "silu",
		},
	}, "", "  ")
}

// sections splits half a head as the released models do: a quarter for time, the rest for height and width.
func (o ScratchOptions) sections() [3]int {
	half := o.HiddenSize / max(o.Heads, 1) / 2
	t := half / 4
	h := (half - t) / 2
	return [3]int{t, h, half - t - h}
}
