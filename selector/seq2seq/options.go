package seq2seq

import (
	"errors"

	"fulcrum/internal/option"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// Options configures the policy (config section seq2seq).
type Options struct {
	Path    *string `koanf:"path" help:"model folder as Hugging Face saves it: T5 (v1.0, v1.1, flan) or BART; or a run, or one of its checkpoints: the model that it trained, adapters merged; null = a small model from random weights (scratch)" also:"model_name_or_path,model_path,model,model_name"`
	Adapter *string `koanf:"adapter" help:"PEFT adapter folder to start from; its rank, alpha and target modules win over lora's"`
	DType   string  `koanf:"dtype" help:"type of the computation and of the frozen weights; auto = the folder's torch_dtype, on the CPU float32 (bfloat16 weights stay as they are in the file), for float16 folders float32 everywhere. Trained weights are float32 always" enum:"auto,float32,bfloat16" also:"torch_dtype,precision,fp16=float16,half=float16,bf16=bfloat16,fp32=float32,float=float32"`

	MaxSourceTokens *int `koanf:"max_source_tokens" help:"longest source in tokens, its end token included: longer ones are cut; null = 512 (T5), the model's positions (BART)" range:"[2,inf)"`

	LoRA    lora.Options `koanf:"lora" help:"low-rank adapters; target_modules=[] = queries and values (q and v in T5, q_proj and v_proj in BART)"`
	TuneAll bool         `koanf:"tune_all" help:"train all weights of the model"`

	GradientCheckpointing bool `koanf:"gradient_checkpointing" help:"keep only the input of each layer for the backward pass and compute the rest again: less memory, a third more time"`

	Generation SamplingOptions `koanf:"generation" help:"how rollouts are drawn, beside the sample_temperature of their phase"`
	Scratch    ScratchOptions  `koanf:"scratch" help:"the model without path"`
}

// SamplingOptions says how tokens are drawn.
type SamplingOptions = tokens.SamplingOptions

// ScratchOptions are the sizes of a model made from random weights.
type ScratchOptions struct {
	Model         string   `koanf:"model" help:"architecture: t5 (ReLU, tied head), t5_v1_1 (gated GELU, head of its own) or bart" enum:"t5,t5_v1_1,bart"`
	Width         int      `koanf:"d_model" help:"width" range:"[1,inf)"`
	FF            int      `koanf:"d_ff" help:"width of the feed-forward layers" range:"[1,inf)"`
	Layers        int      `koanf:"num_layers" help:"layers of the encoder" range:"[1,inf)"`
	DecoderLayers int      `koanf:"num_decoder_layers" help:"layers of the decoder" range:"[1,inf)"`
	Heads         int      `koanf:"num_heads" help:"attention heads; divides d_model" range:"[1,inf)"`
	Positions     int      `koanf:"max_position_embeddings" help:"longest sequence (bart)" range:"[1,inf)"`
	InitStd       *float64 `koanf:"init_std" help:"spread of the weights at the start: their standard deviation in bart, a factor of it in t5; null = 0.02 and 1, as Hugging Face starts them" range:"(0,inf)"`
	VocabSize     int      `koanf:"vocab_size" help:"most tokens of the tokenizer that is trained on the data's texts" range:"[64,inf)"`
}

// DefaultOptions trains adapters of queries and values; the scratch sizes learn the built-in set in minutes.
func DefaultOptions() Options {
	adapters := lora.DefaultOptions()
	adapters.TargetModules = []string{}
	return Options{
		DType: "auto", LoRA: adapters, Generation: DefaultSampling(),
		Scratch: ScratchOptions{Model: "t5", Width: 64, FF: 192, Layers: 2, DecoderLayers: 2, Heads: 4, Positions: 512, VocabSize: 512},
	}
}

// load returns the options that all token policies have.
func (o Options) load() tokens.LoadOptions {
	return tokens.LoadOptions{Path: o.Path, Adapter: o.Adapter, DType: o.DType, LoRA: o.LoRA}
}

// DefaultSampling draws from the policy itself.
func DefaultSampling() SamplingOptions { return tokens.DefaultSampling(64) }

// Validate checks what one key alone can't show.
func (o Options) Validate() error {
	var errs []error
	if o.Path == nil && o.Adapter != nil {
		errs = append(errs, option.Errorf("adapter", "want path: adapters belong to a model folder"))
	}
	if o.Path == nil && o.Scratch.Width%max(1, o.Scratch.Heads) != 0 {
		errs = append(errs, option.Errorf("scratch.d_model", "want a multiple of num_heads=%d, got %d", o.Scratch.Heads, o.Scratch.Width))
	}
	return errors.Join(errs...)
}

// Trains reports whether anything is trained: a model from scratch always is.
func (o Options) Trains() bool {
	return o.Path == nil || o.LoRA.Enabled || o.Adapter != nil || o.TuneAll
}
