package pointer

import (
	"cmp"
	"errors"

	"fulcrum/internal/option"
)

// Options configures the pointer selector (config section selector).
type Options struct {
	// name of the preset, kept in checkpoints and reports
	Variant string `koanf:"variant"`
	// width of the embeddings; null = from the embedding table
	DModel *int `koanf:"d_model"`
	// width h of the encoder
	HiddenDim int `koanf:"hidden_dim" range:"[1,inf)"`
	// cross-attention layers over the pool; 0 = bi-encoder
	NumLayers int `koanf:"num_layers" range:"[0,inf)"`
	// attention heads; divides hidden_dim
	NumHeads int `koanf:"num_heads" range:"[1,inf)"`
	// dropout on encoder outputs, in sft and rce only: never in a forward that enters a ratio or a KL
	Dropout float64 `koanf:"dropout" range:"[0,1)"`
	// dropout on attention weights, in sft and rce only
	AttnDropout float64 `koanf:"attn_dropout" range:"[0,1)"`
	// share of the cross-entropy target spread over the pool (sft, rce)
	Smoothing float64 `koanf:"label_smoothing" range:"[0,1)"`
	// examples to select; null = from the checkpoint, else from the data
	ShotNum *int `koanf:"shot_num" range:"[1,1000]"`
	// logits are cosines divided by this
	Temperature float64 `koanf:"temperature" range:"(0,inf)"`
	// how a choice changes the query state: gate = sigmoid gate of state and chosen example, one a dimension
	// (v3); scalar_gate = one for all (v1); gru = GRU cell with step embedding (v4_2); transformer = a causal
	// language model over query and chosen examples (v0); none (v2)
	StateUpdate string `koanf:"state_update" enum:"gate,none,scalar_gate,gru,transformer"`
	// the language model of state_update=transformer (v0)
	Transformer TransformerOptions `koanf:"transformer" when:"state_update=transformer"`
	// steps with parameters of their own, where a choice has such (transformer, gru, mmr, slots); later steps
	// share the last one's
	DistinctSteps int `koanf:"distinct_steps" range:"[1,1000]" constant:"true"`
	// score of a candidate for the query state: cosine (v3), bilinear, or additive (v4_5)
	Head string `koanf:"head" enum:"cosine,bilinear,additive"`
	// autoregressive: the state scores the pool at every step; slots: each step has a learned transform and
	// slot vector of the state (v4_8)
	Decoder string `koanf:"decoder" enum:"autoregressive,slots"`
	// what a candidate is worth beside those chosen before
	Diversity DiversityOptions `koanf:"diversity" when:".kind"`
	// self-attention of the pool before it is scored (v4_4)
	CandidateEncoder CandidateEncoderOptions `koanf:"candidate_encoder" when:".layers"`
	// coarse-to-fine: a cheap score picks the candidates that the selector looks at (v4_9)
	Coarse CoarseOptions `koanf:"coarse" when:".top_m"`
	// an action that ends the selection: as many shots as the query needs (v4_10)
	Stop StopOptions `koanf:"stop" when:".enabled"`
	// examples already chosen: excluded from the softmax, or given a logit of -100 as in the Python reference
	Taken string `koanf:"taken" enum:"excluded,minus_100"`
	// attention: learned score by cross-attention over the pool (v3); none: skip term and relation only
	Encoder string `koanf:"encoder" enum:"attention,none"`
	// similarity skip term: logit = scale·cos(E_q, E_j) + learned_scale·learned score
	Skip SkipOptions `koanf:"skip" when:".enabled"`
	// learned relation of the raw embeddings, added to the skip term
	Relation RelationOptions `koanf:"relation"`
	// CLIP with adapters trained beside the selector, in place of the table of embeddings (v2_lora)
	Clip ClipOptions `koanf:"clip" when:".path"`
}

// SkipOptions adds the cosine of the raw embeddings to the learned score, so that an untrained selector
// selects the most similar examples instead of random ones.
type SkipOptions struct {
	// add the skip term; both scales are then trained
	Enabled bool `koanf:"enabled"`
	// weight of the cosine at the start, where the trained factor is 1
	Scale float64 `koanf:"scale" range:"(0,inf)"`
	// initial weight b of the learned score; 0 = the start is exactly similarity
	LearnedScale float64 `koanf:"learned_scale" range:"[0,inf)"`
}

// DefaultOptions returns the parity selector (v3) without dropout.
func DefaultOptions() Options {
	return Options{
		Variant: "v3", HiddenDim: 256, NumLayers: 1, NumHeads: 1,
		Temperature: 0.1, StateUpdate: "gate", Taken: "excluded",
		Encoder: "attention", DistinctSteps: 8, Head: "cosine", Decoder: "autoregressive",
		Diversity: DefaultDiversityOptions(), CandidateEncoder: CandidateEncoderOptions{Heads: 4, FFNDim: 512},
		Transformer: TransformerOptions{Layers: 2, Heads: 4, FFNDim: 1024},
		Coarse:      CoarseOptions{Dim: 64}, Stop: StopOptions{MinShots: 1, Initial: 0.02},
		Skip: SkipOptions{Scale: 20, LearnedScale: 0}, Relation: DefaultRelationOptions(),
		Clip: DefaultClipOptions(),
	}
}

// Validate checks what one key alone can't show.
func (o Options) Validate() error {
	divides := func(used bool, key string, heads int) error {
		return option.Want(!used || heads <= 0 || o.HiddenDim%heads == 0, key, "want a divisor of hidden_dim = %d, got %d", o.HiddenDim, heads)
	}
	if err := cmp.Or(divides(true, "num_heads", o.NumHeads), option.Want(o.Encoder != "none" || o.Skip.Enabled, "encoder",
		"want attention, or skip.enabled: nothing else gives a score")); err != nil {
		return err
	}
	return errors.Join(o.encoderOnly(), divides(o.CandidateEncoder.Layers > 0, "candidate_encoder.heads", o.CandidateEncoder.Heads),
		o.Coarse.validate(o), o.Stop.validate(o), divides(o.StateUpdate == transformerState, "transformer.heads", o.Transformer.Heads),
		option.Want(!o.Relation.enabled() || o.Skip.Enabled, "relation", "want skip.enabled: the relation is added to the skip term"))
}

// encoderOnly refuses what needs the encoder's vectors where there is no encoder.
func (o Options) encoderOnly() error {
	refuse := func(key, value string) error {
		return option.Errorf(key, "want encoder=attention with %s: it works on the encoder's vectors, and encoder=%s makes none", value,
			o.Encoder)
	}
	switch {
	case o.Encoder != "none":
		return nil
	case o.Diversity.enabled():
		return refuse("diversity.kind", o.Diversity.Kind)
	case o.CandidateEncoder.Layers > 0:
		return refuse("candidate_encoder.layers", "layers")
	case o.Head != "cosine":
		return refuse("head", o.Head)
	case o.Decoder != "autoregressive":
		return refuse("decoder", o.Decoder)
	case o.Coarse.TopM != nil:
		return refuse("coarse.top_m", "a number")
	case o.Stop.Enabled:
		return refuse("stop.enabled", "true")
	}
	return nil
}
