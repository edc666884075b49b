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
	HiddenDim int `koanf:"hidden_dim" range:"[1,inf)" when:"!head=none"`
	// cross-attention layers over the pool; 0 = bi-encoder
	NumLayers int `koanf:"num_layers" range:"[0,inf)" when:"!head=none"`
	// attention heads; divides hidden_dim
	NumHeads int `koanf:"num_heads" range:"[1,inf)" when:"!head=none"`
	// dropout on encoder outputs, in sft and rce only: never in a forward that enters a ratio or a KL
	Dropout float64 `koanf:"dropout" range:"[0,1)" when:"!head=none"`
	// dropout on attention weights, in sft and rce only
	AttnDropout float64 `koanf:"attn_dropout" range:"[0,1)" when:"!head=none"`
	// share of the cross-entropy target spread over the pool (sft, rce)
	Smoothing float64 `koanf:"label_smoothing" range:"[0,1)"`
	// examples to select; null = from the checkpoint, else from the data
	ShotNum *int `koanf:"shot_num" range:"[1,1000]"`
	// logits are cosines divided by this
	Temperature float64 `koanf:"temperature" range:"(0,inf)" when:"!head=none"`
	// how a choice changes the query state: gate = sigmoid gate for each dimension (v3),
	// scalar_gate = one for all (v1), gru = GRU cell with step embedding (v4_2), transformer = causal language model
	// over query and choices (v0), none (v2)
	StateUpdate string `koanf:"state_update" enum:"gate,none,scalar_gate,gru,transformer" when:"!head=none"`
	// the language model of state_update=transformer (v0)
	Transformer TransformerOptions `koanf:"transformer" when:"state_update=transformer"`
	// steps with parameters of their own, where a choice has such (transformer, gru, mmr, slots); later steps
	// share the last one's
	DistinctSteps int `koanf:"distinct_steps" range:"[1,1000]" constant:"true"`
	// score of a candidate for the query state that cross-attention over the pool makes: cosine (v3), bilinear,
	// additive (v4_5); none: no state, skip term, relation and features only
	Head string `koanf:"head" enum:"cosine,bilinear,additive,none"`
	// autoregressive: the state scores the pool at every step; slots: a learned transform and slot vector for each
	// step (v4_8)
	Decoder string `koanf:"decoder" enum:"autoregressive,slots" when:"!head=none"`
	// what a candidate is worth beside those chosen before
	Diversity DiversityOptions `koanf:",squash"`
	// self-attention of the pool before it is scored (v4_4)
	CandidateEncoder CandidateEncoderOptions `koanf:",squash"`
	// coarse-to-fine: a cheap score picks the candidates that the selector looks at (v4_9)
	Coarse CoarseOptions `koanf:",squash"`
	// an action that ends the selection: as many shots as the query needs (v4_10)
	Stop StopOptions `koanf:",squash"`
	// examples already chosen: excluded from the softmax, or given a logit of -100 as in the Python reference
	Taken string `koanf:"taken" enum:"excluded,minus_100" constant:"true"`
	// similarity skip term: logit = scale·cos(E_q, E_j) + learned_scale·learned score
	Skip SkipOptions `koanf:",squash"`
	// numbers about the candidates of a pool that need no label
	Features FeatureOptions `koanf:",squash"`
	// learned relation of the raw embeddings, added to the skip term
	Relation RelationOptions `koanf:"relation"`
	// CLIP with adapters trained beside the selector, in place of the table of embeddings (v2_lora)
	Clip ClipOptions `koanf:"clip" when:".path"`
}

// SkipOptions adds the cosine of the raw embeddings to the learned score, so that an untrained selector
// selects the most similar examples instead of random ones.
type SkipOptions struct {
	// similarity skip term: logit = a·cos(E_q, E_j) + b·learned score; a starts at 20, b at 0, and both are trained
	Enabled bool `koanf:"skip"`
	// weight a of the cosine at the start, where the trained factor is 1: cosines of images lie close together, and 20 spreads them
	Scale float64 `koanf:"skip_scale" range:"(0,inf)" constant:"true"`
	// weight b of the learned score at the start: the start is then exactly similarity
	LearnedScale float64 `koanf:"learned_scale" range:"[0,inf)" constant:"true"`
}

// DefaultOptions returns the parity selector (v3) without dropout.
func DefaultOptions() Options {
	return Options{
		Variant: "v3", HiddenDim: 256, NumLayers: 1, NumHeads: 1,
		Temperature: 0.1, StateUpdate: "gate", Taken: "excluded",
		DistinctSteps: 8, Head: "cosine", Decoder: "autoregressive",
		Diversity:        DiversityOptions{Kind: "none", Weight: 0.1, Prototypes: 16, Ridge: 0.01},
		CandidateEncoder: CandidateEncoderOptions{Heads: 4, FFNDim: 512},
		Transformer:      TransformerOptions{Layers: 2, Heads: 4, FFNDim: 1024},
		Coarse:           CoarseOptions{Dim: 64}, Stop: StopOptions{MinShots: 1, Initial: 0.02},
		Skip: SkipOptions{Scale: 20, LearnedScale: 0}, Relation: DefaultRelationOptions(),
		Features: FeatureOptions{Names: []string{}, Dim: 64}, Clip: DefaultClipOptions(),
	}
}

func (o Options) Validate() error {
	divides := func(used bool, key string, heads int) error {
		return option.Want(!used || heads <= 0 || o.HiddenDim%heads == 0, key, "want a divisor of hidden_dim = %d, got %d", o.HiddenDim, heads)
	}
	scored := o.encodes() || o.Skip.Enabled || o.Features.enabled()
	if err := cmp.Or(divides(true, "num_heads", o.NumHeads),
		option.Want(scored, "head", "want cosine, bilinear or additive, or skip=true, or features: nothing else gives a score")); err != nil {
		return err
	}
	return errors.Join(o.stateOnly(), o.Features.validate(),
		divides(o.CandidateEncoder.Layers > 0, "candidate_heads", o.CandidateEncoder.Heads), o.Coarse.validate(o), o.Stop.validate(o),
		divides(o.StateUpdate == transformerState, "transformer.heads", o.Transformer.Heads),
		option.Want(!o.Relation.enabled() || o.Skip.Enabled, "relation", "want skip=true: the relation is added to the skip term"))
}

// encodes reports whether queries have a state and candidates vectors, made by the encoder.
func (o Options) encodes() bool { return o.Head != "none" }

// stateOnly refuses what needs the encoder's vectors where there is no encoder.
func (o Options) stateOnly() error {
	refuse := func(key, value string) error {
		return option.Errorf(key, "want another head than none with %s: it works on the encoder's vectors, which head=none leaves out", value)
	}
	switch {
	case o.encodes():
		return nil
	case o.Diversity.Kind != "none" && o.Diversity.Kind != "":
		return refuse("diversity", o.Diversity.Kind)
	case o.CandidateEncoder.Layers > 0:
		return refuse("candidate_layers", "layers")
	case o.Decoder != "autoregressive":
		return refuse("decoder", o.Decoder)
	case o.Coarse.TopM != nil:
		return refuse("coarse_top_m", "a number")
	case o.Stop.Enabled:
		return refuse("stop", "true")
	}
	return nil
}
