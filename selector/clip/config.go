package clip

import (
	"encoding/json"
	"errors"
	"fmt"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/torchx"
	"fulcrum/selector/vl/pixels"
)

// Config is config.json of a CLIP folder.
type Config struct {
	Projection int
	Text       Tower
	Vision     Tower
}

// Tower is the configuration of one of the two encoders.
type Tower struct {
	Hidden       int     `json:"hidden_size"`
	Intermediate int     `json:"intermediate_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int     `json:"num_attention_heads"`
	Activation   string  `json:"hidden_act"`
	Eps          float64 `json:"layer_norm_eps"`

	// text
	Vocab     int   `json:"vocab_size"`
	Positions int   `json:"max_position_embeddings"`
	EOS       int64 `json:"eos_token_id"`

	// vision
	Channels int `json:"num_channels"`
	Image    int `json:"image_size"`
	Patch    int `json:"patch_size"`
}

// legacyEOS is what the first folders say, though their texts end with the highest id.
const legacyEOS = 2

// file is config.json.
type file struct {
	Type       string          `json:"model_type"`
	Projection int             `json:"projection_dim"`
	Text       json.RawMessage `json:"text_config"`
	Vision     json.RawMessage `json:"vision_config"`
	TextDict   json.RawMessage `json:"text_config_dict"` // of old folders: it wins
	VisionDict json.RawMessage `json:"vision_config_dict"`
}

// ParseConfig reads config.json. What it leaves out is as in transformers: the sizes of ViT-B/32.
func ParseConfig(raw []byte) (*Config, error) {
	f := file{Projection: 512}
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if f.Type != "clip" {
		return nil, fmt.Errorf("model_type %q: want clip", f.Type)
	}
	if err := topKeys().Check("", raw); err != nil {
		return nil, err
	}
	c := &Config{Projection: f.Projection,
		Text: Tower{Hidden: 512, Intermediate: 2048, Layers: 12, Heads: 8, Activation: "quick_gelu", Eps: 1e-5, Vocab: 49408, Positions: 77,
			EOS: 49407},
		Vision: Tower{Hidden: 768, Intermediate: 3072, Layers: 12, Heads: 12, Activation: "quick_gelu", Eps: 1e-5, Channels: 3, Image: 224,
			Patch: 32},
	}
	for _, part := range []struct {
		key       string
		raw, dict json.RawMessage
		into      *Tower
	}{{"text_config", f.Text, f.TextDict, &c.Text}, {"vision_config", f.Vision, f.VisionDict, &c.Vision}} {
		if len(part.dict) > 0 && string(part.dict) != "null" {
			part.raw = part.dict
		}
		if len(part.raw) > 0 {
			if err := jsonwords.Unmarshal(part.raw, part.into); err != nil {
				return nil, fmt.Errorf("%s: %w", part.key, err)
			}
			if err := towerKeys().Check(part.key+".", part.raw); err != nil {
				return nil, err
			}
		}
	}
	return c, c.validate()
}

func (c *Config) validate() error {
	const most = 1 << 20
	for _, t := range []struct {
		key string
		Tower
	}{{"text_config", c.Text}, {"vision_config", c.Vision}} {
		for _, n := range []int{t.Hidden, t.Intermediate, t.Layers, t.Heads, c.Projection} {
			if n < 1 || n > most {
				return fmt.Errorf("%s: a size is %d: want 1 to %d", t.key, n, most)
			}
		}
		if t.Hidden%t.Heads != 0 {
			return fmt.Errorf("%s: hidden_size %d is no multiple of num_attention_heads %d", t.key, t.Hidden, t.Heads)
		}
		if err := torchx.KnownActivation("hidden_act", t.Activation); err != nil {
			return fmt.Errorf("%s: %w", t.key, err)
		}
	}
	v, t := c.Vision, c.Text
	switch {
	case v.Channels != 3:
		return fmt.Errorf("vision_config: num_channels %d: want 3", v.Channels)
	case v.Patch < 1 || v.Image < v.Patch || v.Image%v.Patch != 0 || v.Image > 1<<14:
		return fmt.Errorf("vision_config: image_size %d: want a multiple of patch_size %d", v.Image, v.Patch)
	case t.Vocab < 1 || t.Vocab > 1<<24 || t.Positions < 2 || t.Positions > most:
		return fmt.Errorf("text_config: vocab_size %d, max_position_embeddings %d: want positive numbers", t.Vocab, t.Positions)
	}
	return nil
}

// processor is preprocessor_config.json: resize, cut out the middle, normalise.
type processor struct {
	shortest      int // side after resizing; 0: height and width
	height, width int // after resizing
	crop          int // side of the square in the middle; 0: none
	pixels        pixels.Config
}

// sides are the forms that size and crop_size have had: a number, {"shortest_edge"} or {"height", "width"}.
type sides struct{ Shortest, Height, Width int }

func (s *sides) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &s.Shortest) == nil {
		return nil
	}
	var f struct {
		Shortest int `json:"shortest_edge"`
		Height   int `json:"height"`
		Width    int `json:"width"`
		Longest  int `json:"longest_edge"`
	}
	if json.Unmarshal(raw, &f) != nil || f.Longest > 0 || f.Shortest < 1 && (f.Height < 1 || f.Width < 1) {
		return errors.New(`size, crop_size: want a number, {"shortest_edge": n} or {"height": n, "width": n}`)
	}
	*s = sides{f.Shortest, f.Height, f.Width}
	return nil
}

// openProcessor reads how the folder's pictures become pixels: preprocessor_config.json, or what transformers 5 saves with a
// tokenizer, processor_config.json.
func openProcessor(folder string, v Tower) (*processor, error) {
	path, raw, err := pixels.ReadSettings(folder, "image_processor", "preprocessor_config.json")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p, err := parseProcessor(raw, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// settings is preprocessor_config.json.
type settings struct {
	Size   sides `json:"size"`
	Crop   sides `json:"crop_size"`
	CutOut *bool `json:"do_center_crop"`
	pixels.Steps
}

func parseProcessor(raw []byte, v Tower) (*processor, error) {
	f := settings{Size: sides{Shortest: 224}, Crop: sides{Shortest: 224}}
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if err := imageKeys().Check("", raw); err != nil {
		return nil, err
	}
	p := &processor{shortest: f.Size.Shortest, height: f.Size.Height, width: f.Size.Width, pixels: pixels.DefaultConfig()}
	if err := f.Steps.Apply(&p.pixels); err != nil {
		return nil, err
	}
	p.pixels.PatchSize, p.pixels.TemporalPatchSize, p.pixels.MergeSize = v.Patch, 1, 1
	if f.CutOut == nil || *f.CutOut {
		p.crop = max(f.Crop.Shortest, f.Crop.Height)
		if f.Crop.Shortest == 0 && f.Crop.Height != f.Crop.Width {
			return nil, fmt.Errorf("crop_size: %d×%d, want a square", f.Crop.Height, f.Crop.Width)
		}
	}
	side := p.crop
	if side == 0 && p.shortest == 0 && p.height == p.width {
		side = p.height
	}
	if side != v.Image {
		return nil, fmt.Errorf("size and crop_size: pictures have sides of %d, the model's image_size is %d", side, v.Image)
	}
	return p, p.pixels.Validate()
}

// patches returns the rows of one picture, [patches, 3·patch²], as transformers' processor over Pillow makes them.
func (p *processor) patches(img *pixels.RGB) []float32 {
	w, h := p.width, p.height
	if p.shortest > 0 {
		w, h = p.shortest, p.shortest
		if img.W <= img.H {
			h = p.shortest * img.H / img.W
		} else {
			w = p.shortest * img.W / img.H
		}
	}
	img = img.Resize(w, h)
	if p.crop > 0 {
		img = centre(img, p.crop)
	}
	return p.pixels.Patches(img).Data
}

// centre cuts a square out of the middle; where the picture is smaller, black is around it.
func centre(img *pixels.RGB, side int) *pixels.RGB {
	if img.W == side && img.H == side {
		return img
	}
	out := &pixels.RGB{Pix: make([]uint8, side*side*3), W: side, H: side}
	top, left := (img.H-side)>>1, (img.W-side)>>1 // rounded down, as Python's //
	for y := range side {
		from := y + top
		if from < 0 || from >= img.H {
			continue
		}
		lo, hi := max(0, -left), min(side, img.W-left)
		copy(out.Pix[(y*side+lo)*3:(y*side+hi)*3], img.Pix[(from*img.W+lo+left)*3:])
	}
	return out
}

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
