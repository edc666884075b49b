package seq2seq

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/selector/tokens"
)

// The kinds of model: what model_type says.
const (
	kindT5   = "t5"
	kindBART = "bart"
)

// Config is what of config.json decides the shape of a model and its arithmetic. Keys that are absent have Hugging
// Face's defaults. What becomes of every key: Keys.
type Config struct {
	Kind       string // t5 or bart
	Vocab      int    // rows of the embedding; the tokenizer may have fewer ids
	Width      int    // d_model
	Encoder    Stack
	Decoder    Stack
	Activation string // of the feed-forward layers
	Gated      bool   // T5: activation(wi_0·x)·(wi_1·x)
	Tied       bool   // the head is the embedding
	Scaled     bool   // T5: the head reads rows divided by √d_model

	Eps         float64 // of the norms
	Buckets     int     // T5: relative positions are told apart in so many buckets
	MaxDistance int     // T5: all larger distances share the last one
	Positions   int     // BART: longest sequence; T5: 0, any length

	EmbedScale float64 // BART: embeddings are multiplied by it
	InitStd    float64 // of weights at the start (BART), or a factor of it (T5)
	DType      string  // of the weights in the folder, "" when it does not say

	generation GenerationConfig // what config.json says of generation
	Raw        json.RawMessage  // the whole file
}

// Stack is the size of the encoder or of the decoder.
type Stack struct {
	Layers, Heads, HeadDim, FF int
}

// Inner is the width of queries, keys and values: in T5 it may differ from that of the model.
func (s Stack) Inner() int { return s.Heads * s.HeadDim }

// ParseConfig reads config.json. Sizes that the arithmetic cannot have, and switches that ask for another, are named.
func ParseConfig(raw []byte) (*Config, error) {
	kind, err := tokens.ModelType(Kind, raw)
	if err != nil {
		return nil, err
	}
	var head struct {
		DType    string `json:"torch_dtype"`
		NewDType string `json:"dtype"`
	}
	if err := jsonwords.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	c := &Config{Kind: kind, DType: cmp.Or(head.DType, head.NewDType), Raw: bytes.Clone(raw)}
	if kind == kindT5 {
		err = c.t5(raw)
	} else {
		err = c.bart(raw)
	}
	if err != nil {
		return nil, err
	}
	return c, c.Check()
}

// t5File is a T5 config.json. Pointers tell absent keys from zeros.
type t5File struct {
	Vocab         *int     `json:"vocab_size"`
	Width         *int     `json:"d_model"`
	HeadDim       *int     `json:"d_kv"`
	FF            *int     `json:"d_ff"`
	Layers        *int     `json:"num_layers"`
	DecoderLayers *int     `json:"num_decoder_layers"`
	Heads         *int     `json:"num_heads"`
	Buckets       *int     `json:"relative_attention_num_buckets"`
	MaxDistance   *int     `json:"relative_attention_max_distance"`
	Eps           *float64 `json:"layer_norm_epsilon"`
	InitFactor    *float64 `json:"initializer_factor"`
	FeedForward   *string  `json:"feed_forward_proj"`
	Activation    *string  `json:"dense_act_fn"`
	Gated         *bool    `json:"is_gated_act"`
	Tied          *bool    `json:"tie_word_embeddings"`
	Scaled        *bool    `json:"scale_decoder_outputs"` // transformers 5, which writes tie_word_embeddings = true for all
}

func (c *Config) t5(raw []byte) error {
	var f t5File
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return err
	}
	if err := t5Keys().Check("", raw); err != nil {
		return err
	}
	c.Vocab, c.Width = option.Or(f.Vocab, 32128), option.Or(f.Width, 512)
	c.Encoder = Stack{Layers: option.Or(f.Layers, 6), Heads: option.Or(f.Heads, 8), HeadDim: option.Or(f.HeadDim, 64),
		FF: option.Or(f.FF, 2048)}
	c.Decoder = c.Encoder
	c.Decoder.Layers = option.Or(f.DecoderLayers, c.Encoder.Layers)
	c.Buckets, c.MaxDistance = option.Or(f.Buckets, 32), option.Or(f.MaxDistance, 128)
	c.Eps, c.InitStd, c.Tied, c.EmbedScale = option.Or(f.Eps, 1e-6), option.Or(f.InitFactor, 1), option.Or(f.Tied, true), 1
	c.Scaled = option.Or(f.Scaled, c.Tied)
	name := option.Or(f.FeedForward, "relu")
	c.Activation, c.Gated = strings.CutPrefix(name, "gated-")
	if name == "gated-gelu" { // the published gated models mean the tanh form by gelu
		c.Activation = "gelu_new"
	}
	if err := torchx.KnownActivation("feed_forward_proj", c.Activation); err != nil {
		return err
	}
	if act := option.Or(f.Activation, c.Activation); act != c.Activation { // transformers writes what follows from feed_forward_proj
		return fmt.Errorf("dense_act_fn = %q is not supported, want the %q of feed_forward_proj = %q", act, c.Activation, name)
	}
	if gated := option.Or(f.Gated, c.Gated); gated != c.Gated {
		return fmt.Errorf("is_gated_act = %v is not supported, want the %v of feed_forward_proj = %q", gated, c.Gated, name)
	}
	return c.generationKeys(raw, `{"eos_token_id": 1, "pad_token_id": 0}`)
}

// bartFile is a BART config.json.
type bartFile struct {
	Vocab         *int     `json:"vocab_size"`
	Width         *int     `json:"d_model"`
	EncoderLayers *int     `json:"encoder_layers"`
	EncoderFF     *int     `json:"encoder_ffn_dim"`
	EncoderHeads  *int     `json:"encoder_attention_heads"`
	DecoderLayers *int     `json:"decoder_layers"`
	DecoderFF     *int     `json:"decoder_ffn_dim"`
	DecoderHeads  *int     `json:"decoder_attention_heads"`
	Positions     *int     `json:"max_position_embeddings"`
	Activation    *string  `json:"activation_function"`
	InitStd       *float64 `json:"init_std"`
	Scale         *bool    `json:"scale_embedding"`
}

func (c *Config) bart(raw []byte) error {
	var f bartFile
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return err
	}
	if err := bartKeys().Check("", raw); err != nil {
		return err
	}
	c.Vocab, c.Width = option.Or(f.Vocab, 50265), option.Or(f.Width, 1024)
	stack := func(layers, heads, ff *int) Stack {
		s := Stack{Layers: option.Or(layers, 12), Heads: option.Or(heads, 16), FF: option.Or(ff, 4096)}
		if s.Heads > 0 {
			s.HeadDim = c.Width / s.Heads
		}
		return s
	}
	c.Encoder, c.Decoder = stack(f.EncoderLayers, f.EncoderHeads, f.EncoderFF), stack(f.DecoderLayers, f.DecoderHeads, f.DecoderFF)
	c.Positions, c.Tied = option.Or(f.Positions, 1024), true
	c.Activation, c.Eps, c.InitStd, c.EmbedScale = option.Or(f.Activation, "gelu"), 1e-5, option.Or(f.InitStd, 0.02), 1
	if option.Or(f.Scale, false) {
		c.EmbedScale = sqrt(c.Width)
	}
	if err := torchx.KnownActivation("activation_function", c.Activation); err != nil {
		return err
	}
	return c.generationKeys(raw, `{"eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": 2}`)
}

// Check names the first size that the arithmetic cannot have.
func (c *Config) Check() error {
	if err := tokens.Positive("", []string{"vocab_size", "d_model", "the encoder's layers", "the encoder's attention heads",
		"the encoder's head size", "the encoder's feed-forward width", "the decoder's layers",
		"the decoder's attention heads", "the decoder's head size", "the decoder's feed-forward width"},
		c.Vocab, c.Width, c.Encoder.Layers, c.Encoder.Heads, c.Encoder.HeadDim, c.Encoder.FF, c.Decoder.Layers, c.Decoder.Heads,
		c.Decoder.HeadDim, c.Decoder.FF); err != nil {
		return err
	}
	if n := max(c.Encoder.Layers, c.Decoder.Layers); n > hffolder.MaxLayers {
		return fmt.Errorf("%d layers, want at most %d", n, hffolder.MaxLayers)
	}
	if !(c.Eps > 0) {
		return fmt.Errorf("layer_norm_epsilon = %v, want a positive number", c.Eps)
	}
	switch c.Kind {
	case kindT5:
		if c.Buckets < 4 || c.Buckets%4 != 0 { // half for each direction, half of that exact
			return fmt.Errorf("relative_attention_num_buckets = %d, want a multiple of 4", c.Buckets)
		}
		if c.MaxDistance <= c.Buckets/2 { // the decoder's exact half ends below it
			return fmt.Errorf("relative_attention_max_distance = %d, want more than half of relative_attention_num_buckets = %d",
				c.MaxDistance, c.Buckets)
		}
	case kindBART:
		if c.Positions < 1 {
			return fmt.Errorf("max_position_embeddings = %d, want at least 1", c.Positions)
		}
		for _, side := range sides() {
			if heads := c.stack(side).Heads; c.Width%heads != 0 {
				return fmt.Errorf("d_model = %d is no multiple of %s_attention_heads = %d", c.Width, side, heads)
			}
		}
	}
	return c.generation.within(c.Vocab)
}

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
