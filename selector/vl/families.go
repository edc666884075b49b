package vl

import (
	"encoding/json"
	"fmt"
	"math"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
)

// family says in what the decoder of a model_type differs from the others, and what its class in transformers takes for keys that
// config.json leaves out. A model_type is one line of families and one of tokens.ModelType.
type family struct {
	class   string // transformers' class of the decoder's configuration
	eps     float64
	theta   float64 // base of the rotary embedding
	headDim int     // 0: hidden_size / num_attention_heads
	kv      int     // heads of keys and values; 0: num_attention_heads
	tied    bool

	sections [3]int // of the rotary embedding of a model that sees; 0: a text-only model
	mixed    bool   // its channels turn with time, height and width in turn, not in three runs (Qwen3-VL)

	biases    bool   // of queries, keys and values, always
	attention bool   // attention_bias decides about biases of all four
	mlp       bool   // mlp_bias does in the MLP
	headNorms bool   // an RMSNorm on each query and key head, before the rotation (Qwen3)
	bare      bool   // layers without rotation: no_rope_layers (SmolLM3)
	window    bool   // sliding_window bounds what all layers see
	whole     bool   // hidden_size is a multiple of the heads, whatever head_dim is
	slides    bool   // use_sliding_window would bound some layers: refused
	idle      string // one more key without effect
}

func families() map[string]family {
	return map[string]family{
		"qwen2_5_vl": {class: "Qwen2_5_VLTextConfig", eps: 1e-5, theta: 1e6, kv: 8, sections: [3]int{16, 24, 24}, biases: true, slides: true},
		"qwen2_vl":   {class: "Qwen2VLTextConfig", eps: 1e-5, theta: 1e6, kv: 8, sections: [3]int{16, 24, 24}, biases: true, slides: true},
		"qwen3_vl": {class: "Qwen3VLTextConfig", eps: 1e-6, theta: 5e5, headDim: 128, kv: 32, sections: [3]int{24, 20, 20}, mixed: true,
			attention: true, headNorms: true},
		"qwen2":   {class: "Qwen2Config", eps: 1e-6, theta: 1e4, kv: 32, biases: true, slides: true},
		"qwen3":   {class: "Qwen3Config", eps: 1e-6, theta: 1e4, headDim: 128, kv: 32, attention: true, headNorms: true, slides: true},
		"llama":   {class: "LlamaConfig", eps: 1e-6, theta: 1e4, attention: true, mlp: true, whole: true, idle: "pretraining_tp"},
		"mistral": {class: "MistralConfig", eps: 1e-6, theta: 1e4, kv: 8, window: true},
		"smollm3": {class: "SmolLM3Config", eps: 1e-6, theta: 2e6, kv: 4, attention: true, mlp: true, bare: true, slides: true, tied: true},
	}
}

// sees reports whether a vision tower belongs to the model.
func (f family) sees() bool { return f.sections != [3]int{} }

// keys says what becomes of the decoder's keys, which stand at the top of config.json or in text_config.
func (f family) keys() hffolder.Keys {
	k := hffolder.Keys{Class: f.class, Used: hffolder.Tags(textFile{}), Idle: []string{"attention_dropout"},
		Want: map[string][]string{"is_encoder_decoder": {"false"}, "partial_rotary_factor": {"1"}, "original_max_position_embeddings": nil}}
	if f.idle != "" {
		k.Idle = append(k.Idle, f.idle)
	}
	if f.slides {
		k.Want["use_sliding_window"] = []string{"false"}
		k.Idle = append(k.Idle, "sliding_window", "max_window_layers") // of use_sliding_window alone
	}
	for _, own := range []struct {
		has  bool
		keys []string
	}{{f.attention, []string{"attention_bias"}}, {f.mlp, []string{"mlp_bias"}}, {f.window, []string{"sliding_window"}},
		{f.bare, []string{"no_rope_layers", "no_rope_layer_interval"}}} {
		if own.has {
			k.Used = append(k.Used, own.keys...)
		}
	}
	return k.EveryConfig()
}

// familyFile are the keys that only some families have.
type familyFile struct {
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	Window        json.RawMessage `json:"sliding_window"` // null is none, and a missing key the class's
	Rotated       []int           `json:"no_rope_layers"` // 1: the layer rotates, whatever the key is called
	Interval      *int            `json:"no_rope_layer_interval"`
}

// own reads what only this family has.
func (c *Config) own(f family, file familyFile) error {
	c.HeadNorms, c.Mixed = f.headNorms, f.mixed
	c.OutBias = f.attention && file.AttentionBias
	c.Bias, c.MLPBias = f.biases || c.OutBias, f.mlp && file.MLPBias
	if f.window {
		c.Window = 4096
		if file.Window != nil {
			var window *int
			if err := jsonwords.Unmarshal(file.Window, &window); err != nil || window != nil && *window < 1 {
				return fmt.Errorf("sliding_window = %s, want a number of tokens, or null", file.Window)
			}
			c.Window = option.Or(window, 0)
		}
	}
	if !f.bare {
		return nil
	}
	every := option.Or(file.Interval, 4)
	if every < 1 {
		return fmt.Errorf("no_rope_layer_interval = %d, want at least 1", every)
	}
	if file.Rotated != nil && len(file.Rotated) < c.Layers {
		return fmt.Errorf("no_rope_layers has %d numbers, want one for each of %d layers", len(file.Rotated), c.Layers)
	}
	for i := range c.Layers {
		rotated := (i+1)%every != 0
		if file.Rotated != nil {
			rotated = file.Rotated[i] != 0
		}
		c.Bare = append(c.Bare, !rotated)
	}
	return nil
}

// scaling stretches the rotary embedding to sequences longer than those of pretraining.
type scaling struct {
	kind                string // linear, llama3 or "" for none
	factor              float64
	low, high, original float64 // of llama3
}

// scaling reads the type of rope_parameters. positions is max_position_embeddings, which llama3 takes for a missing original.
func (r *ropeFile) scaling(kind string, positions int) (s scaling, err error) {
	s.kind = kind
	need := func(key string, from *float64) float64 {
		if from == nil || !(*from > 0) {
			if err == nil {
				err = fmt.Errorf("rope type %q: %s is missing or not positive", kind, key)
			}
			return 1
		}
		return *from
	}
	s.factor = need("factor", r.Factor)
	if kind != "llama3" {
		return s, err
	}
	s.low, s.high = need("low_freq_factor", r.Low), need("high_freq_factor", r.High)
	s.original = need("original_max_position_embeddings", new(option.Or(r.Original, float64(positions))))
	if err == nil && s.low == s.high {
		err = fmt.Errorf("rope type %q: low_freq_factor and high_freq_factor are both %v, want two numbers", kind, s.low)
	}
	return s, err
}

// stretch changes frequencies as transformers does (_compute_llama3_parameters), each operation rounded as PyTorch rounds it.
func (s scaling) stretch(inv []float32) {
	factor := float32(s.factor)
	for i, f := range inv {
		if s.kind == "linear" {
			inv[i] = f / factor
		}
		if s.kind != "llama3" {
			continue
		}
		length := 1 / f * float32(2*math.Pi)
		switch {
		case length > float32(s.original/s.low):
			inv[i] = f / factor
		case length >= float32(s.original/s.high):
			smooth := (1/length*float32(s.original) - float32(s.low)) / float32(s.high-s.low)
			inv[i] = (1-smooth)*f/factor + smooth*f
		}
	}
}
