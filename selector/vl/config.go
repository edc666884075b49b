package vl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/selector/tokens"
)

// Config is what of config.json decides the shape of a model: the sizes of the decoder, of the vision tower where there
// is one, and the ids of the placeholders. What becomes of every key: ConfigKeys.
type Config struct {
	Vocab        int
	Hidden       int
	Intermediate int
	Layers       int
	Heads        int
	KVHeads      int
	HeadDim      int
	Eps          float64 // of the decoder's RMSNorm
	RopeTheta    float64
	Sections     [3]int // channels of a head's half that turn with time, height and width
	Positions    int    // the longest sequence that the model was made for; 0 = not said
	Window       int    // no sequence may be longer; 0 = no bound
	Bias         bool   // queries, keys and values have biases
	OutBias      bool   // what attention gives back has one
	MLPBias      bool
	Mixed        bool   // the sections' channels alternate
	HeadNorms    bool   // queries and keys are normed head by head
	Bare         []bool // layers that do not rotate; nil: all rotate
	Tied         bool   // the head is the embedding
	Activation   string // of the gates
	DType        string // of the weights in the folder, "" when it does not say
	InitStd      float64
	EOS          []int64 // of config.json; generation_config.json has the last word

	Vision *Vision // nil: a text-only model

	ImageToken, VideoToken, VisionStart, VisionEnd, VisionToken int64

	Raw json.RawMessage // the whole file

	stretched scaling
}

// PatchSize is the number of values in a row of pixels.
func (v *Vision) PatchSize() int { return v.Channels * v.TemporalPatch * v.Patch * v.Patch }

// Cell is the number of patches that are merged into one token.
func (v *Vision) Cell() int { return v.Merge * v.Merge }

// file is config.json. Pointers tell absent keys from zeros; the text keys stand at the top, or in text_config
// (transformers 4.52 and later).
type file struct {
	ModelType string `json:"model_type"`
	textFile
	Text   object `json:"text_config"`
	Vision object `json:"vision_config"`

	ImageToken  int64 `json:"image_token_id"`
	VideoToken  int64 `json:"video_token_id"`
	VisionStart int64 `json:"vision_start_token_id"`
	VisionEnd   int64 `json:"vision_end_token_id"`
	VisionToken int64 `json:"vision_token_id"`
}

type textFile struct {
	Vocab          *int            `json:"vocab_size"`
	Hidden         *int            `json:"hidden_size"`
	Intermediate   *int            `json:"intermediate_size"`
	Layers         *int            `json:"num_hidden_layers"`
	Heads          *int            `json:"num_attention_heads"`
	KVHeads        json.RawMessage `json:"num_key_value_heads"` // null is num_attention_heads, a missing key the class's
	HeadDim        *int            `json:"head_dim"`
	Positions      *int            `json:"max_position_embeddings"`
	Eps            *float64        `json:"rms_norm_eps"`
	RopeTheta      *float64        `json:"rope_theta"`
	RopeScaling    *ropeFile       `json:"rope_scaling"`
	RopeParameters *ropeFile       `json:"rope_parameters"`
	Tied           *bool           `json:"tie_word_embeddings"`
	DType          *string         `json:"torch_dtype"`
	NewDType       *string         `json:"dtype"`
	InitStd        *float64        `json:"initializer_range"`
	Activation     *string         `json:"hidden_act"`
	LayerTypes     []string        `json:"layer_types"`
	EOS            json.RawMessage `json:"eos_token_id"`
}

type ropeFile struct {
	Type     string   `json:"type"`
	NewType  string   `json:"rope_type"`
	Section  []int    `json:"mrope_section"`
	Theta    *float64 `json:"rope_theta"`
	Partial  *float64 `json:"partial_rotary_factor"`
	Factor   *float64 `json:"factor"`
	Low      *float64 `json:"low_freq_factor"`
	High     *float64 `json:"high_freq_factor"`
	Original *float64 `json:"original_max_position_embeddings"`
}

// ParseConfig reads config.json. Sizes that the arithmetic cannot have are named.
func ParseConfig(raw []byte) (*Config, error) {
	kind, err := tokens.ModelType(Kind, raw)
	if err != nil {
		return nil, err
	}
	var f file
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	of := families()[kind]
	if err := f.checkKeys(kind, of, raw); err != nil {
		return nil, err
	}
	text, beside := f.textFile, raw
	if of.mixed && len(f.Text) == 0 {
		return nil, fmt.Errorf("text_config is missing")
	}
	if len(f.Text) > 0 && of.sees() { // then transformers does not read these keys at the top, but for a few
		text, beside = textFile{EOS: f.EOS}, f.Text
		if err := jsonwords.Unmarshal(f.Text, &text); err != nil {
			return nil, fmt.Errorf("text_config: %w", err)
		}
		inner := option.Or(text.Tied, false) && !of.mixed // Qwen3-VL's class reads the top alone
		text.Tied = new(option.Or(f.Tied, false) || inner)
		if whole := cmp.Or(f.DType, f.NewDType); whole != nil && *whole != "" { // it may leave an old type inside
			text.DType = whole
		}
	}
	c := &Config{Raw: bytes.Clone(raw),
		ImageToken: f.ImageToken, VideoToken: f.VideoToken, VisionStart: f.VisionStart, VisionEnd: f.VisionEnd, VisionToken: f.VisionToken}
	var own familyFile
	if err := jsonwords.Unmarshal(beside, &own); err != nil {
		return nil, err
	}
	if err := c.text(text, of); err != nil {
		return nil, err
	}
	if err := c.own(of, own); err != nil {
		return nil, err
	}
	if !of.sees() {
		return c, c.Check()
	}
	if len(f.Vision) == 0 {
		return nil, fmt.Errorf("vision_config is missing")
	}
	if err := c.vision(kind, f.Vision); err != nil {
		return nil, fmt.Errorf("vision_config: %w", err)
	}
	for _, token := range []struct {
		key string
		id  int64
	}{{"image_token_id", c.ImageToken}, {"video_token_id", c.VideoToken}} {
		if token.id <= 0 || token.id >= int64(c.Vocab) {
			return nil, fmt.Errorf("%s = %d, want an id below vocab_size = %d", token.key, token.id, c.Vocab)
		}
	}
	return c, c.Check()
}

// text reads the decoder's keys. What they leave out is as in its family.
func (c *Config) text(t textFile, of family) error {
	for _, need := range []struct {
		key  string
		from *int
		to   *int
	}{
		{"vocab_size", t.Vocab, &c.Vocab}, {"hidden_size", t.Hidden, &c.Hidden}, {"intermediate_size", t.Intermediate, &c.Intermediate},
		{"num_hidden_layers", t.Layers, &c.Layers}, {"num_attention_heads", t.Heads, &c.Heads},
	} {
		if need.from == nil {
			return fmt.Errorf("%s is missing", need.key)
		}
		*need.to = *need.from
	}
	c.KVHeads = cmp.Or(of.kv, c.Heads)
	if t.KVHeads != nil {
		var heads *int
		if err := jsonwords.Unmarshal(t.KVHeads, &heads); err != nil {
			return fmt.Errorf("num_key_value_heads: %w", err)
		}
		c.KVHeads = option.Or(heads, c.Heads)
	}
	if c.Heads > 0 {
		c.HeadDim = option.Or(t.HeadDim, cmp.Or(of.headDim, c.Hidden/c.Heads))
		if c.Hidden%c.Heads != 0 && (t.HeadDim == nil && of.headDim == 0 || of.whole) {
			return fmt.Errorf("hidden_size = %d is no multiple of num_attention_heads = %d", c.Hidden, c.Heads)
		}
	}
	c.Eps, c.RopeTheta, c.InitStd = option.Or(t.Eps, of.eps), option.Or(t.RopeTheta, of.theta), option.Or(t.InitStd, 0.02)
	c.Positions = option.Or(t.Positions, 0)
	c.Tied = option.Or(t.Tied, of.tied)
	c.DType = option.Or(t.DType, option.Or(t.NewDType, ""))
	c.Activation = option.Or(t.Activation, "silu")
	if err := torchx.KnownActivation("hidden_act", c.Activation); err != nil {
		return err
	}
	if t.LayerTypes != nil && len(t.LayerTypes) != c.Layers && of.slides {
		return fmt.Errorf("layer_types has %d entries, want one for each of %d layers", len(t.LayerTypes), c.Layers)
	}
	for _, kind := range t.LayerTypes {
		if kind != "full_attention" {
			return fmt.Errorf("layer_types has %q, want full_attention alone", kind)
		}
	}
	eos, err := tokens.ParseIDs(t.EOS)
	if err != nil {
		return fmt.Errorf("eos_token_id: %w", err)
	}
	c.EOS = eos
	if c.Sections = of.sections; !of.sees() {
		c.Sections = [3]int{c.HeadDim / 2, 0, 0}
	}
	return c.rope(t, of)
}

// rope reads base, scaling and sections. Plain rotary positions are the multimodal ones with three equal rows, whatever the sections are.
func (c *Config) rope(t textFile, of family) (err error) {
	r := t.RopeScaling // the older name wins, as in transformers, but for an empty object
	if r == nil || reflect.ValueOf(*r).IsZero() {
		r = t.RopeParameters
	}
	if r == nil {
		return nil
	}
	switch kind := cmp.Or(r.NewType, r.Type, "default"); {
	case kind == "default" || kind == "mrope" && of.sees():
	case (kind == "linear" || kind == "llama3") && !of.sees():
		if c.stretched, err = r.scaling(kind, c.Positions); err != nil {
			return err
		}
	case of.sees():
		return fmt.Errorf("rope_scaling type %q is not supported: want mrope or default", kind)
	default:
		return fmt.Errorf("rope_scaling type %q is not supported: want default, linear or llama3", kind)
	}
	if option.Or(r.Partial, 1) != 1 {
		return fmt.Errorf("rope_scaling.partial_rotary_factor = %v is not supported, want 1", *r.Partial)
	}
	c.RopeTheta = option.Or(r.Theta, c.RopeTheta)
	if r.Section != nil {
		if len(r.Section) != 3 {
			return fmt.Errorf("mrope_section = %v, want three numbers", r.Section)
		}
		c.Sections = [3]int(r.Section)
	}
	return nil
}

// Check names the first size that the arithmetic cannot have.
func (c *Config) Check() error {
	if err := tokens.Positive("", []string{"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
		"num_key_value_heads", "head_dim"},
		c.Vocab, c.Hidden, c.Intermediate, c.Layers, c.Heads, c.KVHeads, c.HeadDim); err != nil {
		return err
	}
	if c.Layers > hffolder.MaxLayers {
		return fmt.Errorf("num_hidden_layers = %d, want at most %d", c.Layers, hffolder.MaxLayers)
	}
	if c.Positions < 0 {
		return fmt.Errorf("max_position_embeddings = %d, want at least 1", c.Positions)
	}
	if c.Vision != nil && !c.HeadNorms && c.HeadDim*c.Heads != c.Hidden { // Qwen2's towers: transformers has no head_dim there
		return fmt.Errorf("head_dim = %d, want hidden_size / num_attention_heads = %d", c.HeadDim, c.Hidden/c.Heads)
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("num_attention_heads = %d is no multiple of num_key_value_heads = %d", c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("head size %d (head_dim, or hidden_size / num_attention_heads) is odd", c.HeadDim)
	}
	if sum := c.Sections[0] + c.Sections[1] + c.Sections[2]; sum != c.HeadDim/2 || min(c.Sections[0], c.Sections[1], c.Sections[2]) < 0 {
		return fmt.Errorf("mrope_section = %v sums to %d, want half the head size, %d", c.Sections, sum, c.HeadDim/2)
	}
	if !(c.Eps > 0) || !(c.RopeTheta > 0) {
		return fmt.Errorf("rms_norm_eps = %v and rope_theta = %v, want positive numbers", c.Eps, c.RopeTheta)
	}
	if c.Vision == nil {
		return nil
	}
	return c.Vision.check(c.Hidden)
}

func (v *Vision) check(hidden int) error {
	if err := tokens.Positive("vision_config.", []string{"depth", "hidden_size", "intermediate_size", "num_heads", "in_chans", "patch_size",
		"temporal_patch_size", "spatial_merge_size"},
		v.Depth, v.Hidden, v.Intermediate, v.Heads, v.Channels, v.Patch, v.TemporalPatch, v.Merge); err != nil {
		return err
	}
	if v.Depth > hffolder.MaxLayers {
		return fmt.Errorf("vision_config.depth = %d, want at most %d", v.Depth, hffolder.MaxLayers)
	}
	if v.Hidden%(4*v.Heads) != 0 { // a half of a head turns with the row, the other with the column
		return fmt.Errorf("vision_config.hidden_size = %d is no multiple of 4·num_heads = %d", v.Hidden, 4*v.Heads)
	}
	if v.Window < v.Patch*v.Merge && !v.names.plain {
		return fmt.Errorf("vision_config.window_size = %d holds no merged cell of %d pixels", v.Window, v.Patch*v.Merge)
	}
	if !(v.RopeTheta > 0) {
		return fmt.Errorf("vision_config.rope_parameters: rope_theta = %v, want a positive number", v.RopeTheta)
	}
	if v.Out != hidden {
		return fmt.Errorf("vision_config.out_hidden_size = %d, want hidden_size = %d", v.Out, hidden)
	}
	return nil
}

// object is a JSON object of a file; null counts as missing.
type object json.RawMessage

func (o *object) UnmarshalJSON(raw []byte) error {
	if string(raw) != "null" {
		*o = slices.Clone(raw)
	}
	return nil
}

func topKeys() hffolder.Keys {
	return hffolder.Keys{Of: "config.json", Class: "Qwen2_5_VLConfig, Qwen2VLConfig, Qwen3VLConfig", Used: hffolder.Tags(file{}),
		Want: map[string][]string{"is_encoder_decoder": {"false"}}}.EveryConfig()
}

// Keys says what becomes of the keys of a folder's config.json and generation_config.json.
func Keys() []hffolder.Keys {
	out := []hffolder.Keys{topKeys()}
	for _, kind := range slices.Sorted(maps.Keys(families())) {
		of := families()[kind]
		k := of.keys()
		if k.Of = "config.json of model_type " + kind; of.sees() {
			k.Of = "text_config of model_type " + kind + " (or the top of config.json)"
			out = append(out, towers()[kind].keys())
		}
		out = append(out, k)
	}
	return append(out, tokens.GenerationKeys(Kind))
}

// checkKeys refuses keys that ask for another arithmetic.
func (f *file) checkKeys(kind string, of family, raw []byte) error {
	for _, part := range []struct {
		prefix string
		keys   hffolder.Keys
		raw    []byte
	}{{"", topKeys(), raw}, {"", of.keys(), raw}, {"text_config.", of.keys(), f.Text}, {"vision_config.", towers()[kind].keys(), f.Vision}} {
		if err := part.keys.Check(part.prefix, part.raw); err != nil {
			return err
		}
	}
	return nil
}
