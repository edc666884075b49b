package pointer

import (
	"regexp"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
)

// Embedder computes the rows of a table of embeddings, where and when they are wanted, by a model with adapters that are among a policy's
// parameters (clip.Adapted).
type Embedder interface {
	// Specs lists the adapters among a policy's parameters.
	Specs() []torchx.Spec
	// Start fills fresh adapters.
	Start(params *torchx.Params, seed int64) error
	// Over returns the model with the adapters among params.
	Over(params *torchx.Params) Embedder
	// Rows returns the embeddings [len(rows), d], with gradient to the adapters alone. train drops by masks of the seed.
	Rows(rows []int64, train bool, seed uint64) torchx.Tensor
	// Fingerprint identifies the weights without adapters.
	Fingerprint() string
	// Free lets go of the model, which the last policy that holds it releases.
	Free()
}

// ClipOptions lets the selector train low-rank adapters of the CLIP model that its embeddings come from.
type ClipOptions struct {
	// CLIP folder that made data.embeddings; each step computes them anew, with trained adapters, from the pictures and
	// questions of data.records_icl; null = the table stays
	Path *string `koanf:"path" also:"clip_path,clip_name,clip_model"`
	// what an embedding is made of: as embed.modality made the table
	Modality string `koanf:"modality" enum:"image,text,both"`
	// adapters of the towers that are read
	LoRA lora.Options `koanf:"lora" also:"lora_config" when:".enabled"`
	// MiB of pixels that stay in memory (0.6 a picture of 224 × 224); other pictures are read again
	CacheMiB int `koanf:"cache_mib" range:"[0,inf)" constant:"true"`
}

// DefaultClipOptions adapts the attention with rank 16 and alpha 32 once there is a path.
func DefaultClipOptions() ClipOptions {
	return ClipOptions{Modality: "image", CacheMiB: 2048,
		LoRA: lora.Options{Enabled: true, Rank: 16, Alpha: 32, TargetModules: []string{"q_proj", "k_proj", "v_proj", "out_proj"}}}
}

// Validate refuses a model of which nothing is trained.
func (o ClipOptions) Validate() error {
	return option.Want(o.Path == nil || o.LoRA.Enabled, "lora.enabled",
		"want true with a path: without adapters the embeddings are those of data.embeddings, which costs nothing")
}

// Config describes the adapters as PEFT does. Those of one tower name it, since both have layers of the same names.
func (o ClipOptions) Config() lora.Config {
	c := o.LoRA.Config()
	c.TaskType = "FEATURE_EXTRACTION"
	if tower := map[string]string{"image": "vision_model", "text": "text_model"}[o.Modality]; tower != "" {
		ends := strings.Join(list.Map(c.Targets, regexp.QuoteMeta), "|")
		c.Targets, c.Pattern = nil, tower+`\.(?:.*\.)?(?:`+ends+")"
	}
	return c
}
