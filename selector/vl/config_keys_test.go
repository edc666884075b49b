package vl

import (
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// TestValuesOfConfig: keys of config.json that change numbers without changing a shape change ours as transformers'. The numbers are
// transformers 5.23's:
//
//	m = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()   # tiny_tied, config.json with the change
//	m(input_ids=ids, pixel_values=pix, image_grid_thw=grid, mm_token_type_ids=(ids == 612).int(),
//	  attention_mask=torch.ones_like(ids)).logits[0, -1, :6]                                     # prompt big_image, its pixels
func TestValuesOfConfig(t *testing.T) {
	vision := func(key string, value any) func(map[string]any) {
		return func(c map[string]any) { c["vision_config"].(map[string]any)[key] = value }
	}
	text := func(key string, value any) func(map[string]any) {
		return func(c map[string]any) { c[key] = value }
	}
	for _, tc := range []struct {
		name string
		edit func(map[string]any)
		want []float64
	}{
		{"as it is", nil, []float64{0.358871, 1.84705, 3.71894, -0.609012, 2.35822, -0.675896}},
		{"the tower with gelu", vision("hidden_act", "gelu"), []float64{-0.385457, 1.54448, 3.16596, -0.352488, 2.22113, -0.138625}},
		{"the tower with quick_gelu", vision("hidden_act", "quick_gelu"),
			[]float64{-0.341898, 1.54917, 3.19911, -0.368872, 2.23668, -0.151154}},
		{"the tower with the tanh form", vision("hidden_act", "gelu_pytorch_tanh"),
			[]float64{-0.385386, 1.54503, 3.16572, -0.352784, 2.22147, -0.138485}},
		{"the tower with relu", vision("hidden_act", "relu"), []float64{-1.11422, 0.805884, 2.75175, -0.354725, 2.02835, -0.164956}},
		{"the tower with silu's other name", vision("hidden_act", "swish"),
			[]float64{0.358871, 1.84705, 3.71894, -0.609012, 2.35822, -0.675896}},
		{"the tower's rotations", vision("rope_parameters", map[string]any{"rope_type": "axial", "rope_theta": 100}),
			[]float64{0.485346, 1.96424, 3.46735, -1.06804, 2.53844, -0.239384}},
		{"the decoder with gelu", text("hidden_act", "gelu"), []float64{0.583037, 2.46193, 4.16943, -0.303638, 1.66157, -0.763022}},
		{"the decoder with quick_gelu", text("hidden_act", "quick_gelu"),
			[]float64{0.583813, 2.38059, 4.13991, -0.35494, 1.68066, -0.75239}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := mustOpenAt(t, rewrite(t, "tiny_tied", tc.edit, nil, 0))
			logits := promptLogits(t, m, prompt(t, "big_image"))
			last := logits[len(logits)-m.cfg.Vocab:]
			golden.Close(t, last[:6], tc.want, 1e-4) // sums of a thousand terms in another order
		})
	}
}

// TestKeysThatAreRefused: what would change numbers, and is not done, is named.
func TestKeysThatAreRefused(t *testing.T) {
	for _, tc := range []struct {
		key   string
		value any
		want  string
	}{
		{"vision_config.hidden_act", "mish", `vision_config: unknown hidden_act "mish" (did you mean swish?): want one of gelu, `},
		{"hidden_act", "gelu_10", `unknown hidden_act "gelu_10"`},
		{"use_sliding_window", true, "use_sliding_window = true is not supported, want false"},
		{"layer_types", []string{"full_attention", "sliding_attention", "full_attention", "full_attention"}, `layer_types has "sliding_attention"`},
		{"per_layer_config", map[string]any{"0": map[string]any{"rms_norm_eps": 1}}, "per_layer_config = {"},
		{"quantization_config", map[string]any{"bits": 4}, `quantization_config = {"bits":4} is not supported, want null`},
		{"vision_config.num_attention_heads", 4, "vision_config.num_attention_heads = 4 is not supported, want it equal to num_heads"},
		{"vision_config.rope_parameters", map[string]any{"rope_type": "yarn"}, `rope_parameters: type "yarn" is not supported`},
		{"is_encoder_decoder", true, "is_encoder_decoder = true is not supported, want false"},
		{"head_dim", 12, "head_dim = 12, want hidden_size / num_attention_heads = 16"},
	} {
		_, err := openAt(rewrite(t, "tiny_tied", func(c map[string]any) {
			if key, ok := strings.CutPrefix(tc.key, "vision_config."); ok {
				c = c["vision_config"].(map[string]any)
				c[key] = tc.value
				return
			}
			c[tc.key] = tc.value
		}, nil, 0))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.key, err, tc.want)
		}
	}
}
