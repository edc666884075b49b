// Package seq2seq is the encoder-decoder policy: T5 (v1.0, v1.1, flan; Raffel et al. 2020, arXiv:1910.10683) and BART
// (Lewis et al. 2019, arXiv:1910.13461), loaded from a Hugging Face folder or made small from random weights, with
// low-rank adapters or all weights trained.
//
//	model, err := seq2seq.Open(options, "cpu", seed, warn)
//	answers, err := model.Generate(sources, 5, seq2seq.GenerateOptions{...})   // 5 samples a source
//	policy := seq2seq.NewPolicy(model)                                         // selector.Policy: tokens are actions
//
// Hidden states are packed rows [N, d_model] without padding. A group is a source and its completions: the source goes
// through the encoder once, with gradient, and all its completions attend to those rows.
package seq2seq

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/option"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// Kind names the policy in checkpoints and configurations.
const Kind = "seq2seq"

func names() tokens.Names { return tokens.Names{Section: "seq2seq", Kind: Kind} }

// Model is an encoder-decoder with its trainable parts. It implements tokens.Model.
type Model struct {
	*tokens.Weights
	cfg *Config
	opt Options

	net       network
	table     torchx.Tensor // [V, d] the embedding of both stacks
	headScale float64       // the decoder's rows are multiplied by it before the head

	generation GenerationConfig
}

// Open loads the model folder options.Path, and options.Adapter where it is given. What nobody trains stays mapped in the
// file where device and type allow it. seed starts new adapters. warn, which may be nil, hears of the choices that a
// user might not expect.
func Open(options Options, device string, seed int64, warn func(string)) (*Model, error) {
	return openWith(options, nil, device, seed, warn)
}

// openWith is Open with adapters that a checkpoint describes, where adapted is not nil.
func openWith(options Options, adapted *lora.Config, device string, seed int64, warn func(string)) (*Model, error) {
	return tokens.OpenFolder(names(), options.Path, ParseConfig, func(folder *hffolder.Folder, cfg *Config) (m *Model, err error) {
		defer torchx.Recover(&err)
		if err := folder.CheckLayers("the number of layers", max(cfg.Encoder.Layers, cfg.Decoder.Layers)); err != nil {
			return nil, err
		}
		if err := cfg.settleHead(folder); err != nil {
			return nil, err
		}
		if err := cfg.checkFolder(folder); err != nil {
			return nil, err
		}
		generation, err := cfg.parseGeneration(folder.Generation)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(folder.Path, "generation_config.json"), err)
		}
		bias, err := cfg.readBias(folder)
		if err != nil {
			return nil, err
		}
		w, err := tokens.Load(folder, cfg.layout(options), options.Options, adapted, device, seed, warn)
		if err != nil {
			return nil, err
		}
		if bias != nil {
			w.Frozen().Tensors[finalBias] = torchx.Own(w.OnDevice(torchx.From(bias, len(bias))))
		}
		return newModel(w, cfg, options, generation), nil
	})
}

// OpenCheckpoint rebuilds the model of a training checkpoint. What was trained, and how, follows the file; the folder
// options.Path must be the one that it was trained on, unless it was trained from scratch.
func OpenCheckpoint(path string, options Options, device string, seed int64, warn func(string)) (*Model, error) {
	return tokens.OpenCheckpoint(path, names(), options.Path, tokens.Opener[*Model, *Config]{
		Parse:   ParseConfig,
		Scratch: func(cfg *Config) (*Model, error) { return newScratch(options, cfg, device, seed) },
		Folder: func(adapted *lora.Config, parts []string) (*Model, error) {
			options.Adapter, options.LoRA = nil, lora.Options{}
			options.TuneAll = slices.Equal(parts, tunedAll())
			return openWith(options, adapted, device, seed, warn)
		},
	})
}

// readBias returns final_logits_bias [V] of a BART folder; nil where it has none or it is zero, as in all published
// folders.
func (c *Config) readBias(folder *hffolder.Folder) ([]float32, error) {
	t, ok := folder.Tensor(finalBias)
	if !ok || c.Kind != kindBART {
		return nil, nil
	}
	values, err := t.Float32s()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder.Path, err)
	}
	if !slices.ContainsFunc(values, func(v float32) bool { return v != 0 }) {
		return nil, nil
	}
	return slices.Clone(values), nil
}

func newModel(w *tokens.Weights, cfg *Config, options Options, generation GenerationConfig) *Model {
	m := &Model{Weights: w, cfg: cfg, opt: options, generation: generation}
	m.wire()
	return m
}

func (m *Model) build(b *tokens.Builder) (head torchx.Tensor) {
	m.table, m.headScale = b.Tensor(m.cfg.embedding(), m.cfg.Vocab, m.cfg.Width), 1
	if m.cfg.Kind == kindBART {
		m.net = m.newBART(b)
		return m.table
	}
	m.net = m.newT5(b)
	if m.cfg.Scaled {
		m.headScale = 1 / sqrt(m.cfg.Width)
	}
	if m.cfg.Tied {
		return m.table
	}
	return b.Tensor("lm_head.weight", m.cfg.Vocab, m.cfg.Width)
}

func (m *Model) wire() {
	m.Head = m.build(m.Builder())
	m.HeadBias = m.Frozen().Tensors[finalBias]
}

func (m *Model) Config() *Config { return m.cfg }

// MaxSourceTokens is the longest source that should be encoded: the option, else what the model was made for.
func (m *Model) MaxSourceTokens() int {
	made := cmp.Or(m.cfg.Positions, 512) // T5's training length; its relative positions take any
	return min(option.Or(m.opt.MaxSourceTokens, made), cmp.Or(m.cfg.Positions, math.MaxInt))
}

// Clone returns a model with its own copy of the trained tensors; all others are shared.
func (m *Model) Clone() tokens.Model[[]int64] {
	c := *m
	c.Weights = m.Copy()
	c.wire()
	return &c
}

// SaveMerged writes the whole model as a Hugging Face folder (tokens.Weights.WriteMerged). Its weights have the names of
// the class that has a head, whatever the folder was.
func (m *Model) SaveMerged(path, dtype string) error {
	class := map[string]any{"architectures": []string{"T5ForConditionalGeneration"}}
	if m.cfg.Kind == kindT5 {
		if !m.cfg.Tied && !m.cfg.Scaled { // what older readers go by
			class["tie_word_embeddings"] = false
		}
		return m.WriteMerged(path, dtype, class)
	}
	class["architectures"] = []string{"BartForConditionalGeneration"}
	bias := make([]float32, m.cfg.Vocab)
	if !m.HeadBias.Nil() {
		bias = torchx.Data[float32](m.HeadBias.ToDevice("cpu"))
	}
	return m.WriteMerged(path, dtype, class, tensorfile.FromFloat32s(finalBias, []int{1, m.cfg.Vocab}, bias))
}

// Policy is the policy of a Model.
type Policy = tokens.Policy[[]int64]

// NewPolicy returns the policy of a model, which it owns. Rollouts are drawn with seq2seq.generation's top-p and top-k.
// Their first token is the folder's forced one, where it has one.
func NewPolicy(m *Model) *Policy {
	return tokens.NewPolicy[[]int64](m, m.opt.Generation, m.generation.ForcedBOS)
}

// LogProbs is tokens.LogProbs of this model.
func (m *Model) LogProbs(groups []Group) ([][][]float64, error) {
	return tokens.LogProbs[[]int64](m, groups)
}
