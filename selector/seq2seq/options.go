package seq2seq

import (
	"errors"

	"fulcrum/internal/option"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// Options configures the policy (config section seq2seq).
type Options struct {
	tokens.Options

	// longest source in tokens: longer ones are cut; null = 512 (T5), the model's positions (BART)
	MaxSourceTokens *int `koanf:"max_source_tokens" range:"[2,inf)"`

	// train all weights of the model
	TuneAll bool `koanf:"tune_all"`
	// the model without path
	Scratch ScratchOptions `koanf:"scratch" when:"!path"`
}

// ScratchOptions are the sizes of a model made from random weights.
type ScratchOptions struct {
	// architecture: t5 (ReLU, tied head), t5_v1_1 (gated GELU, head of its own) or bart
	Model string `koanf:"model" enum:"t5,t5_v1_1,bart"`
	// width
	Width int `koanf:"d_model" range:"[1,inf)"`
	// width of the feed-forward layers
	FF int `koanf:"d_ff" range:"[1,inf)"`
	// layers of the encoder
	Layers int `koanf:"num_layers" range:"[1,inf)"`
	// layers of the decoder
	DecoderLayers int `koanf:"num_decoder_layers" range:"[1,inf)"`
	// attention heads; divides d_model
	Heads int `koanf:"num_heads" range:"[1,inf)"`
	// longest sequence (bart)
	Positions int `koanf:"max_position_embeddings" range:"[1,inf)" constant:"true"`
	// spread of the weights at the start: their standard deviation in bart, a factor of it in t5; null = 0.02
	// and 1, as Hugging Face starts them
	InitStd *float64 `koanf:"init_std" range:"(0,inf)" constant:"true"`
	// most tokens of the tokenizer that is trained on the data's texts
	VocabSize int `koanf:"vocab_size" range:"[64,inf)"`
}

// DefaultOptions trains adapters of queries and values; the scratch sizes learn the built-in set in minutes.
func DefaultOptions() Options {
	adapters := lora.DefaultOptions()
	adapters.TargetModules = []string{}
	return Options{
		Options: tokens.Options{DType: "auto", LoRA: adapters, Generation: DefaultSampling()},
		Scratch: ScratchOptions{Model: "t5", Width: 64, FF: 192, Layers: 2, DecoderLayers: 2, Heads: 4, Positions: 512, VocabSize: 512},
	}
}

// DefaultSampling draws from the policy itself.
func DefaultSampling() tokens.SamplingOptions { return tokens.DefaultSampling(64) }

func (Options) Choices() map[string][]string {
	return map[string][]string{"dtype": {"auto", "float32", "bfloat16"}}
}

func (o Options) Validate() error {
	return errors.Join(
		o.Options.Validate(),
		option.Want(o.Generation.Kernel != "fast", "generation.kernel", "want exact: there is no other kernel for encoder-decoders"),
		option.Want(o.Path != nil || o.Scratch.Width%max(1, o.Scratch.Heads) == 0, "scratch.d_model",
			"want a multiple of num_heads=%d, got %d", o.Scratch.Heads, o.Scratch.Width))
}

// Trains reports whether anything is trained: a model from scratch always is.
func (o Options) Trains() bool {
	return o.Adapts() || o.TuneAll
}
