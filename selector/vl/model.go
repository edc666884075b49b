// Package vl is the vision-language policy: Qwen2.5-VL and decoders of text alone (families), loaded from a Hugging
// Face folder or made small from random weights, with low-rank adapters or whole parts trained.
//
//	model, err := vl.Open(options, "cpu", seed, warn)
//	answers, err := model.Generate(prompts, 8, vl.GenerateOptions{...})   // 8 samples a prompt
//	policy := vl.NewPolicy(model)                                         // selector.Policy: tokens are actions
//
// Hidden states are packed rows [N, hidden] without padding. A group is its prompt's rows once, followed by the rows
// of its completions: these attend to the prompt's keys and to their own, so the prompt is computed once a group, with
// gradient, and the numbers are those of separate sequences.
package vl

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// Kind names the policy in checkpoints and configurations.
const Kind = "qwen2_5_vl"

func names() tokens.Names { return tokens.Names{Section: "vl", Kind: Kind} }

// Model is Qwen2.5-VL with its trainable parts. It implements tokens.Model.
type Model struct {
	*tokens.Weights
	cfg *Config
	opt Options

	text   decoder
	vision *tower // nil: text only
	// tunesVision says that something of the tower or the merger is trained, whole or by adapters: pictures' vectors have
	// gradients then, and change.
	tunesVision bool
	features    *features // vectors of pictures where they do not change, shared by clones
	rope        *rope

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
	return tokens.OpenFolder(names(), options.Path, ParseConfig, func(folder *hffolder.Folder, cfg *Config) (*Model, error) {
		if err := options.fits(cfg); err != nil {
			return nil, err
		}
		if folder.Differ("lm_head.weight", "model.embed_tokens.weight") {
			cfg.Tied = false // as transformers reads such a folder, whatever config.json says
		}
		if err := cfg.checkFolder(folder); err != nil {
			return nil, err
		}
		name, said := "generation_config.json", folder.Generation
		if said == nil {
			name, said = "config.json", folder.Config
		}
		generation, err := parseGeneration(said)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(folder.Path, name), err)
		}
		if generation.EOS == nil {
			generation.EOS = cfg.EOS
		}
		ends := map[string][]int64{"eos_token_id": generation.EOS, "forced_eos_token_id": generation.ForcedEOS}
		if err := tokens.Within(cfg.Vocab, ends); err != nil {
			return nil, fmt.Errorf("%s: %w", folder.Path, err)
		}
		w, err := tokens.Load(folder, cfg.layout(options), options.Options, adapted, device, seed, warn)
		if err != nil {
			return nil, err
		}
		return newModel(w, cfg, options, generation)
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
			for _, p := range options.parts() {
				*p.on = slices.Contains(parts, p.name)
			}
			return openWith(options, adapted, device, seed, warn)
		},
	})
}

// newModel looks the weights up, which it owns.
func newModel(w *tokens.Weights, cfg *Config, options Options, generation GenerationConfig) (*Model, error) {
	m := &Model{Weights: w, cfg: cfg, opt: options, generation: generation, features: &features{Limit: featureBytes,
		Free: torchx.Tensor.Free, Size: func(x torchx.Tensor) int { return x.Numel() * x.DType().Size() }}}
	w.Frozen().AtFree = m.features.Clear
	if err := torchx.Try(func() error { m.wire(); return m.takesKernel() }); err != nil {
		w.Frozen().Disown() // the caller closes the folder
		w.Free()
		return nil, err
	}
	return m, nil
}

// takesKernel refuses a fast kernel that would never run.
func (m *Model) takesKernel() error {
	o, half := m.opt.Generation, m.DType != torchx.Float32
	if o.Kernel != "fast" || m.OnCUDA() && half && (m.cfg.HeadDim == 64 || m.cfg.HeadDim == 128) {
		return nil
	}
	return fmt.Errorf("vl.generation.kernel=fast: want device=cuda, vl.dtype=bfloat16 or float16 and heads of 64 or 128 numbers (here %d)",
		m.cfg.HeadDim)
}

func (m *Model) wire() {
	m.text = m.cfg.decoder(m.Builder())
	m.Head = m.text.head
	m.rope = newRope(m.cfg)
	if m.cfg.Vision != nil {
		m.vision = m.cfg.tower(m.Builder())
		m.tunesVision = slices.ContainsFunc(m.Params().Names(), isVisual)
	}
}

// CheckPrompt refuses a prompt that leaves no room for a completion of so many tokens: beyond the positions that it was
// made for a model computes for long, and nothing sensible.
func (m *Model) CheckPrompt(tokens, completion int) error {
	if err := m.inWindow(tokens + completion); err != nil {
		return err
	}
	if p := m.cfg.Positions; p > 0 && tokens+completion > p {
		return fmt.Errorf("the prompt has %d tokens and the completion up to %d: want at most %d together (max_position_embeddings in "+
			"config.json)", tokens, completion, p)
	}
	return nil
}

// inWindow refuses prompts and completions of more tokens together than a layer sees: windows that slide are not computed.
func (m *Model) inWindow(tokens int) error {
	if w := m.cfg.Window; w > 0 && tokens > w {
		return fmt.Errorf("prompt and completion may have %d tokens, but the model sees %d back (sliding_window in config.json): longer "+
			"sequences are not supported", tokens, w)
	}
	return nil
}

// checkFolder names the tensors that are missing or not expected, and those of another shape.
func (c *Config) checkFolder(folder *hffolder.Folder) error {
	if err := folder.CheckLayers("num_hidden_layers", c.Layers); err != nil {
		return err
	}
	if v := c.Vision; v != nil {
		if err := folder.CheckLayers("vision_config.depth", v.Depth); err != nil {
			return err
		}
	}
	want := list.Map(c.weightNames(), func(s torchx.Spec) hffolder.Want { return hffolder.Want{Name: s.Name, Shape: s.Shape} })
	return folder.Check(want, func(name string) bool { // buffers of old versions, and the head where it is the embedding
		return strings.HasSuffix(name, "rotary_emb.inv_freq") || c.Tied && name == "lm_head.weight"
	})
}

// fits refuses switches that the folder has no part for.
func (o Options) fits(cfg *Config) error {
	if cfg.Vision != nil {
		return nil
	}
	for key, on := range map[string]bool{"tune_mm_vision": o.TuneMMVision, "tune_mm_mlp": o.TuneMMMLP} {
		if on {
			return fmt.Errorf("vl.%s=true: %s is a text-only model", key, *o.Path)
		}
	}
	return nil
}

// CheckTraining refuses to train a model that computes in float16: gradients below 6e-8 are 0 there, and there is no loss
// scaling to lift them.
func (m *Model) CheckTraining() error {
	if m.DType != torchx.Float16 {
		return nil
	}
	why := ""
	if m.opt.DType != "float16" {
		why = " (torch_dtype of the folder's config.json)"
	}
	return fmt.Errorf("vl.dtype=%s: training in float16%s loses small gradients, there is no loss scaling; want vl.dtype=bfloat16, or "+
		"float32 where the device has no bfloat16", m.opt.DType, why)
}

func (m *Model) Config() *Config { return m.cfg }

// SaveMerged writes the whole model as a Hugging Face folder (tokens.Weights.WriteMerged).
func (m *Model) SaveMerged(path, dtype string) error {
	return m.WriteMerged(path, dtype, map[string]any{"tie_word_embeddings": m.cfg.Tied})
}

// Clone returns a model with its own copy of the trained tensors; all others are shared.
func (m *Model) Clone() tokens.Model[*processor.Prompt] {
	c := *m
	c.Weights = m.Copy()
	c.wire()
	return &c
}

// Policy is the policy of a Model.
type Policy = tokens.Policy[*processor.Prompt]

// NewPolicy returns the policy of a model, which it owns. Rollouts are drawn with vl.generation's top-p, top-k and
// repetition penalty.
func NewPolicy(m *Model) *Policy {
	return tokens.NewPolicy[*processor.Prompt](m, m.opt.Generation, nil)
}

// LogProbs is tokens.LogProbs of this model.
func (m *Model) LogProbs(groups []Group) ([][][]float64, error) {
	return tokens.LogProbs[*processor.Prompt](m, groups)
}

// Reads reports whether a tensor has a part in prompts with or without images: the vision tower has none in text.
func Reads(tensor string, images bool) bool { return images || !isVisual(tensor) }

// isVisual reports whether a trained tensor belongs to the vision tower or its merger.
func isVisual(name string) bool {
	return strings.HasPrefix(name, "visual.") || strings.HasPrefix(name, "base_model.model.visual.")
}
