package vl

import (
	"encoding/json"
	"slices"

	"fulcrum/internal/hffolder"
	"fulcrum/selector/tokens"
)

// object is a JSON object of a file; null counts as missing.
type object json.RawMessage

func (o *object) UnmarshalJSON(raw []byte) error {
	if string(raw) != "null" {
		*o = slices.Clone(raw)
	}
	return nil
}

// textKeys says what becomes of the decoder's keys, which stand at the top of config.json or in text_config.
func textKeys() hffolder.Keys {
	return hffolder.Keys{
		Of: "text_config of config.json (or its top)", Class: "Qwen2_5_VLTextConfig",
		Used: hffolder.Tags(textFile{}),
		Idle: []string{"attention_dropout", "sliding_window", "max_window_layers"}, // windows: of use_sliding_window alone
		Want: map[string][]string{"use_sliding_window": {"false"}, "is_encoder_decoder": {"false"}},
	}.EveryConfig()
}

func visionKeys() hffolder.Keys {
	return hffolder.Keys{
		Of: "vision_config of config.json", Class: "Qwen2_5_VLVisionConfig",
		Used:  hffolder.Tags(Vision{}, visionFile{}),
		Idle:  []string{"initializer_range", "spatial_patch_size"},
		Want:  map[string][]string{"is_encoder_decoder": {"false"}, "head_dim": nil},
		Alias: map[string]string{"num_attention_heads": "num_heads", "num_hidden_layers": "depth"},
	}.EveryConfig()
}

func topKeys() hffolder.Keys {
	return hffolder.Keys{Of: "config.json", Class: "Qwen2_5_VLConfig", Used: hffolder.Tags(file{}),
		Want: map[string][]string{"is_encoder_decoder": {"false"}}}.EveryConfig()
}

// Keys says what becomes of the keys of a folder's config.json and generation_config.json.
func Keys() []hffolder.Keys {
	plain := textKeys()
	plain.Of, plain.Class = "config.json of a text-only model", "Qwen2Config"
	return []hffolder.Keys{topKeys(), textKeys(), visionKeys(), plain, tokens.GenerationKeys(Kind)}
}

// checkKeys refuses keys that ask for another arithmetic.
func (f *file) checkKeys(raw []byte) error {
	for _, part := range []struct {
		prefix string
		keys   hffolder.Keys
		raw    []byte
	}{{"", topKeys(), raw}, {"", textKeys(), raw}, {"text_config.", textKeys(), f.Text}, {"vision_config.", visionKeys(), f.Vision}} {
		if err := part.keys.Check(part.prefix, part.raw); err != nil {
			return err
		}
	}
	return nil
}
