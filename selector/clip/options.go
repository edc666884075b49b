package clip

import "fulcrum/internal/option"

// Options is the section encoder: the model that questions and images become vectors by.
type Options struct {
	// CLIP folder as Hugging Face saves it, or a language model's
	Path *string `koanf:"path" also:"model_name_or_path,model_path,clip_path,clip_model"`
	// type of the computation; embeddings are float32
	DType string `koanf:"dtype" enum:"float32,bfloat16" also:"torch_dtype,precision,bf16=bfloat16,fp32=float32,float=float32"`
	// images or texts encoded at once
	Batch int `koanf:"batch" range:"[1,inf)" also:"batch_size"`
}

// DefaultOptions encodes 32 at once.
func DefaultOptions() Options { return Options{DType: "float32", Batch: 32} }

func (o Options) Validate() error {
	return option.Want(o.Path != nil, "path", "embeddings need an encoder: encoder.path=DIR, a CLIP folder such as clip-vit-base-patch32, "+
		"or a language model's")
}
