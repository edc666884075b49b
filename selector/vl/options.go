package vl

import (
	"errors"

	"fulcrum/internal/option"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// Options configures the policy (config section vl).
type Options struct {
	Path    *string `koanf:"path" help:"model folder as Hugging Face saves it: Qwen2.5-VL, or text-only Qwen2 and Qwen2.5; null = a small model from random weights (scratch)" also:"model_name_or_path,model_path,model,model_name"`
	Adapter *string `koanf:"adapter" help:"PEFT adapter folder to start from; its rank, alpha and target modules win over lora's"`
	DType   string  `koanf:"dtype" help:"type of the computation and of the frozen weights; auto = the folder's torch_dtype, on the CPU float32 (bfloat16 weights stay as they are in the file). Trained weights are float32 always; float16 only answers, it does not train" enum:"auto,float32,bfloat16,float16" also:"torch_dtype,precision,fp16=float16,half=float16,bf16=bfloat16,fp32=float32,float=float32"`

	MinPixels *int `koanf:"min_pixels" help:"fewest pixels of an image after resizing; null = the folder's preprocessor_config.json" range:"[1,inf)"`
	MaxPixels *int `koanf:"max_pixels" help:"most pixels of an image after resizing; null = the folder's preprocessor_config.json" range:"[1,inf)"`

	LoRA         lora.Options `koanf:"lora" help:"low-rank adapters"`
	TuneMMLLM    bool         `koanf:"tune_mm_llm" help:"train the weights of the decoder"`
	TuneMMVision bool         `koanf:"tune_mm_vision" help:"train the weights of the vision tower"`
	TuneMMMLP    bool         `koanf:"tune_mm_mlp" help:"train the weights of the merger between them"`

	GradientCheckpointing bool `koanf:"gradient_checkpointing" help:"keep only the input of each layer for the backward pass and compute the rest again: less memory, a third more time"`

	Generation SamplingOptions `koanf:"generation" help:"how rollouts are drawn, beside the sample_temperature of their phase"`
	Scratch    ScratchOptions  `koanf:"scratch" help:"sizes of the model without path: Qwen2.5-VL's architecture, small"`
}

// SamplingOptions says how tokens are drawn.
type SamplingOptions = tokens.SamplingOptions

// ScratchOptions are the sizes of a model made from random weights.
type ScratchOptions struct {
	HiddenSize       int                  `koanf:"hidden_size" help:"width of the decoder" range:"[2,inf)"`
	IntermediateSize int                  `koanf:"intermediate_size" help:"width of the decoder's MLP" range:"[1,inf)"`
	Layers           int                  `koanf:"num_hidden_layers" help:"layers of the decoder" range:"[1,inf)"`
	Heads            int                  `koanf:"num_attention_heads" help:"query heads; hidden_size is an even multiple" range:"[1,inf)"`
	KVHeads          int                  `koanf:"num_key_value_heads" help:"key and value heads; divides num_attention_heads" range:"[1,inf)"`
	RopeTheta        float64              `koanf:"rope_theta" help:"base of the rotary embedding" range:"(0,inf)"`
	InitStd          float64              `koanf:"initializer_range" help:"standard deviation of the weights at the start" range:"(0,inf)"`
	VocabSize        int                  `koanf:"vocab_size" help:"most tokens of the byte-level BPE that is trained on the data's texts, special tokens apart" range:"[256,inf)"`
	ImagePixels      int                  `koanf:"image_pixels" help:"pixels that images are resized to, about; 28·28 of them make a token" range:"[784,inf)"`
	Vision           ScratchVisionOptions `koanf:"vision" help:"sizes of the vision tower"`
}

// ScratchVisionOptions are the sizes of its vision tower.
type ScratchVisionOptions struct {
	Depth            int   `koanf:"depth" help:"blocks" range:"[1,inf)"`
	HiddenSize       int   `koanf:"hidden_size" help:"width; a multiple of 4·num_heads" range:"[4,inf)"`
	IntermediateSize int   `koanf:"intermediate_size" help:"width of the MLP" range:"[1,inf)"`
	Heads            int   `koanf:"num_heads" help:"attention heads" range:"[1,inf)"`
	Window           int   `koanf:"window_size" help:"pixels along a side of an attention window" range:"[28,inf)"`
	FullBlocks       []int `koanf:"fullatt_block_indexes" help:"blocks that attend to the whole image"`
}

// DefaultOptions trains adapters of the decoder's attention; the scratch sizes learn the built-in questions in minutes.
func DefaultOptions() Options {
	return Options{
		DType: "auto", LoRA: lora.DefaultOptions(),
		Generation: DefaultSampling(),
		Scratch: ScratchOptions{HiddenSize: 64, IntermediateSize: 192, Layers: 2, Heads: 4, KVHeads: 2, RopeTheta: 10000, InitStd: 0.02, VocabSize: 640, ImagePixels: 112 * 112,
			Vision: ScratchVisionOptions{Depth: 2, HiddenSize: 48, IntermediateSize: 96, Heads: 3, Window: 112, FullBlocks: []int{1}}},
	}
}

// load returns the options that all token policies have.
func (o Options) load() tokens.LoadOptions {
	return tokens.LoadOptions{Path: o.Path, Adapter: o.Adapter, DType: o.DType, LoRA: o.LoRA}
}

// DefaultSampling draws from the policy itself.
func DefaultSampling() SamplingOptions { return tokens.DefaultSampling(128) }

// Validate checks what one key alone can't show.
func (o Options) Validate() error {
	var errs []error
	if v := o.Scratch.Vision; o.Path == nil {
		for _, i := range v.FullBlocks {
			if i < 0 || i >= v.Depth {
				errs = append(errs, option.Errorf("scratch.vision.fullatt_block_indexes", "want blocks 0 to %d (depth %d), got %d", v.Depth-1, v.Depth, i))
			}
		}
		const side = 28 // 14 pixels a patch, two by two patches a cell
		if v.Window%side != 0 {
			errs = append(errs, option.Errorf("scratch.vision.window_size", "want a multiple of %d pixels, a merged cell, got %d", side, v.Window))
		}
	}
	if o.Path == nil && o.Adapter != nil {
		errs = append(errs, option.Errorf("adapter", "want path: adapters belong to a model folder"))
	}
	if o.LoRA.Enabled && len(o.LoRA.TargetModules) == 0 {
		errs = append(errs, option.Errorf("lora.target_modules", "want at least one name while enabled is true"))
	}
	return errors.Join(errs...)
}

// Trains reports whether anything is trained: a model from scratch always is.
func (o Options) Trains() bool {
	return o.Path == nil || o.LoRA.Enabled || o.Adapter != nil || o.TuneMMLLM || o.TuneMMVision || o.TuneMMMLP
}
