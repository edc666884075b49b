package clip

import (
	"fulcrum/internal/hffolder"
	"fulcrum/selector/vl/pixels"
)

func topKeys() hffolder.Keys {
	return hffolder.Keys{Of: "config.json of a CLIP", Class: "CLIPConfig", Used: hffolder.Tags(file{}),
		Idle: []string{"logit_scale_init_value", "initializer_factor", "initializer_range"},
		Want: map[string][]string{"is_encoder_decoder": {"false"}}}.EveryConfig()
}

func towerKeys() hffolder.Keys {
	return hffolder.Keys{Of: "text_config and vision_config of a CLIP's config.json", Class: "CLIPTextConfig, CLIPVisionConfig",
		Used: hffolder.Tags(Tower{}),
		Idle: []string{"attention_dropout", "dropout", "initializer_factor", "initializer_range", "projection_dim"},
		Want: map[string][]string{"is_encoder_decoder": {"false"}}}.EveryConfig()
}

// imageKeys: pixels.ImageKeys has what the other processor passes over.
func imageKeys() hffolder.Keys {
	names := []string{`"CLIPImageProcessor"`, `"CLIPImageProcessorFast"`, `"CLIPImageProcessorPil"`, `"CLIPFeatureExtractor"`}
	k := hffolder.Keys{Of: "preprocessor_config.json of a CLIP", Class: "CLIPImageProcessor", Used: hffolder.Tags(settings{}),
		Want: map[string][]string{"image_processor_type": names, "feature_extractor_type": names, "default_to_square": {"false"},
			"use_square_size": {"false"}, "do_pad": {"false"}}}
	for _, key := range pixels.ImageKeys().Idle {
		if _, wanted := k.Want[key]; !wanted && key != "do_center_crop" && key != "crop_size" {
			k.Idle = append(k.Idle, key)
		}
	}
	return k
}

// Keys says what becomes of the keys of a folder's config.json and preprocessor_config.json.
func Keys() []hffolder.Keys { return []hffolder.Keys{topKeys(), towerKeys(), imageKeys()} }
