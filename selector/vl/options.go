package vl

import (
	"errors"

	"fulcrum/internal/option"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// Options configures the policy (config section vl).
type Options struct {
	tokens.Options

	// fewest pixels of an image after resizing; null = the folder's preprocessor_config.json
	MinPixels *int `koanf:"min_pixels" range:"[1,inf)"`
	// most pixels of an image after resizing; null = the folder's preprocessor_config.json
	MaxPixels *int `koanf:"max_pixels" range:"[1,inf)"`

	// train the weights of the decoder
	TuneMMLLM bool `koanf:"tune_mm_llm"`
	// train the weights of the vision tower
	TuneMMVision bool `koanf:"tune_mm_vision"`
	// train the weights of the merger between them
	TuneMMMLP bool `koanf:"tune_mm_mlp"`
	// sizes of the model without path: Qwen2.5-VL's architecture, small
	Scratch ScratchOptions `koanf:"scratch" when:"!path"`
}

// ScratchOptions are the sizes of a model made from random weights.
type ScratchOptions struct {
	// width of the decoder
	HiddenSize int `koanf:"hidden_size" range:"[2,inf)"`
	// width of the decoder's MLP
	IntermediateSize int `koanf:"intermediate_size" range:"[1,inf)"`
	// layers of the decoder
	Layers int `koanf:"num_hidden_layers" range:"[1,inf)"`
	// query heads; hidden_size is an even multiple
	Heads int `koanf:"num_attention_heads" range:"[1,inf)"`
	// key and value heads; divides num_attention_heads
	KVHeads int `koanf:"num_key_value_heads" range:"[1,inf)"`
	// base of the rotary embedding
	RopeTheta float64 `koanf:"rope_theta" range:"(0,inf)"`
	// standard deviation of the weights at the start
	InitStd float64 `koanf:"initializer_range" range:"(0,inf)"`
	// most tokens of the byte-level BPE that is trained on the data's texts, special tokens apart
	VocabSize int `koanf:"vocab_size" range:"[256,inf)"`
	// pixels that images are resized to, about; 28·28 of them make a token
	ImagePixels int `koanf:"image_pixels" range:"[784,inf)"`
	// sizes of the vision tower
	Vision ScratchVisionOptions `koanf:"vision"`
}

// ScratchVisionOptions are the sizes of its vision tower.
type ScratchVisionOptions struct {
	// blocks
	Depth int `koanf:"depth" range:"[1,inf)"`
	// width; a multiple of 4·num_heads
	HiddenSize int `koanf:"hidden_size" range:"[4,inf)"`
	// width of the MLP
	IntermediateSize int `koanf:"intermediate_size" range:"[1,inf)"`
	// attention heads
	Heads int `koanf:"num_heads" range:"[1,inf)"`
	// pixels along a side of an attention window
	Window int `koanf:"window_size" range:"[28,inf)" constant:"true"`
	// blocks that attend to the whole image
	FullBlocks []int `koanf:"fullatt_block_indexes"`
}

// DefaultOptions trains adapters of the decoder's attention; the scratch sizes learn the built-in questions in minutes.
func DefaultOptions() Options {
	return Options{
		Options: tokens.Options{DType: "auto", LoRA: lora.DefaultOptions(), Generation: DefaultSampling()},
		Scratch: ScratchOptions{HiddenSize: 64, IntermediateSize: 192, Layers: 2, Heads: 4, KVHeads: 2, RopeTheta: 10000, InitStd: 0.02,
			VocabSize: 640, ImagePixels: 112 * 112,
			Vision: ScratchVisionOptions{Depth: 2, HiddenSize: 48, IntermediateSize: 96, Heads: 3, Window: 112, FullBlocks: []int{1}}},
	}
}

// DefaultSampling draws from the policy itself.
func DefaultSampling() tokens.SamplingOptions { return tokens.DefaultSampling(128) }

func (Options) Choices() map[string][]string {
	return map[string][]string{"dtype": {"auto", "float32", "bfloat16", "float16"}}
}

func (o Options) Validate() error {
	var errs []error
	if v := o.Scratch.Vision; o.Path == nil {
		for _, i := range v.FullBlocks {
			errs = append(errs, option.Want(i >= 0 && i < v.Depth, "scratch.vision.fullatt_block_indexes",
				"want blocks 0 to %d (depth %d), got %d", v.Depth-1, v.Depth, i))
		}
		const side = 28 // 14 pixels a patch, two by two patches a cell
		errs = append(errs, option.Want(v.Window%side == 0, "scratch.vision.window_size",
			"want a multiple of %d pixels, a merged cell, got %d", side, v.Window))
	}
	return errors.Join(append(errs,
		o.Options.Validate(),
		option.Want(!o.LoRA.Enabled || len(o.LoRA.TargetModules) > 0, "lora.target_modules", "want at least one name while enabled is true"))...)
}

// Trains reports whether anything is trained: a model from scratch always is.
func (o Options) Trains() bool {
	return o.Adapts() || o.TuneMMLLM || o.TuneMMVision || o.TuneMMMLP
}
