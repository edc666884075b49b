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
	"fmt"
	"path/filepath"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// taskType is what PEFT calls adapters of an encoder-decoder.
const taskType = "SEQ_2_SEQ_LM"

// Model is an encoder-decoder with its trainable parts.
type Model struct {
	cfg    *Config
	opt    Options
	device string
	dtype  torchx.DType // of the computation, and of frozen weights but for matrices that stay as they are in the file
	seed   int64

	params  *torchx.Params // trained: float32
	frozen  *weights.Frozen
	adapted *lora.Config // nil: no adapters
	modules map[string]lora.Module

	net       network
	table     torchx.Tensor // [V, d] the embedding of both stacks
	head      torchx.Tensor // [V, d]; the table where they are tied
	headScale float64       // the decoder's rows are multiplied by it before the head
	headBias  torchx.Tensor // [V] added to all logits, or none

	generation GenerationConfig
	folder     [2][]byte // config.json and generation_config.json, for export
	base       string    // fingerprint of the folder; "" from scratch

	generator *torchx.Generator // of dropout masks; made when needed
}

// Open loads the model folder options.Path, and options.Adapter where it is given. What nobody trains stays mapped in the
// file where device and type allow it. seed starts new adapters. warn, which may be nil, hears of the choices that a
// user might not expect.
func Open(options Options, device string, seed int64, warn func(string)) (*Model, error) {
	return openWith(options, nil, device, seed, warn)
}

// openWith is Open with adapters that a checkpoint describes, where adapted is not nil.
func openWith(options Options, adapted *lora.Config, device string, seed int64, warn func(string)) (*Model, error) {
	if options.Path == nil {
		return nil, fmt.Errorf("seq2seq.path is null: want a model folder")
	}
	folder, err := hffolder.Open(*options.Path)
	if err != nil {
		return nil, fmt.Errorf("seq2seq.path: %w", err)
	}
	m, err := open(folder, options, adapted, device, seed, warn)
	if err != nil {
		folder.Close()
		return nil, err
	}
	return m, nil
}

func open(folder *hffolder.Folder, options Options, adapted *lora.Config, device string, seed int64, warn func(string)) (*Model, error) {
	cfg, err := ParseConfig(folder.Config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder.Path, "config.json"), err)
	}
	if err := folder.CheckLayers("the number of layers", max(cfg.Encoder.Layers, cfg.Decoder.Layers)); err != nil {
		return nil, err
	}
	if err := cfg.checkFolder(folder); err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg, opt: options, device: device, seed: seed, folder: [2][]byte{folder.Config, folder.Generation}, base: folder.Fingerprint()}
	if m.generation, err = cfg.parseGeneration(folder.Generation); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder.Path, "generation_config.json"), err)
	}
	if m.dtype, err = computeType(options.DType, cfg.DType, device, warn); err != nil {
		return nil, err
	}
	var adapter *lora.Adapter
	switch {
	case adapted != nil:
		m.adapted = adapted
	case options.Adapter != nil:
		if adapter, err = lora.Read(*options.Adapter); err != nil {
			return nil, fmt.Errorf("seq2seq.adapter: %w", err)
		}
		m.adapted = &adapter.Config
	case options.LoRA.Enabled:
		config := options.LoRA.Config()
		if len(config.Targets) == 0 {
			config.Targets = cfg.targets()
		}
		m.adapted = &config
	}
	if m.adapted != nil {
		m.adapted.TaskType = taskType
	}
	specs, err := m.trainable()
	if err != nil {
		return nil, err
	}
	if err := weights.FitHost(cfg.weightNames(), specs, cfg.DType == "bfloat16", m.dtype, device); err != nil {
		return nil, err
	}
	m.params = torchx.NewParams(specs, device)
	m.frozen = weights.NewFrozen(folder)
	err = torchx.Try(func() error {
		if err := m.load(folder); err != nil {
			return err
		}
		if err := lora.Start(m.params, cfg.linears(), m.modules, adapter, seed); err != nil {
			return fmt.Errorf("seq2seq.adapter: %w", err)
		}
		return nil
	})
	if err != nil {
		m.frozen.Disown() // the caller closes it
		m.Free()
		return nil, err
	}
	m.frozen.Placed()
	m.wire()
	return m, nil
}

// computeType resolves seq2seq.dtype. float16 is never computed in: the feed-forward layers of T5 overflow its range.
func computeType(option, file, device string, warn func(string)) (torchx.DType, error) {
	name := option
	if name == "auto" || name == "" {
		if name = file; name == "" {
			name = "float32"
		}
	}
	switch {
	case name == "float16":
		if warn != nil {
			warn("seq2seq.dtype: the folder's weights are float16, whose range these models exceed; computing in float32")
		}
		return torchx.Float32, nil
	case name == "bfloat16" && device == "cpu" && option != name: // forty times as slow as float32 without instructions for it
		return torchx.Float32, nil
	case name == "bfloat16":
		return torchx.BFloat16, nil
	case name == "float32":
		return torchx.Float32, nil
	}
	return 0, fmt.Errorf("seq2seq.dtype=%s (torch_dtype of config.json: %q): want float32 or bfloat16", option, file)
}

// trainable lists the trained tensors: whole weights under their own names, adapters under PEFT's. It fills modules.
func (m *Model) trainable() ([]torchx.Spec, error) {
	var specs []torchx.Spec
	if m.opt.TuneAll || m.opt.Path == nil {
		specs = m.cfg.weightNames()
	}
	m.modules = map[string]lora.Module{}
	if m.adapted == nil {
		return specs, nil
	}
	modules, err := m.adapted.Select(m.cfg.linears())
	if err != nil {
		if m.opt.Adapter != nil {
			return nil, fmt.Errorf("seq2seq.adapter=%s is no adapter of this model: %w", *m.opt.Adapter, err)
		}
		return nil, fmt.Errorf("seq2seq.lora: %w", err)
	}
	for _, a := range modules {
		m.modules[a.Name] = a
	}
	return append(specs, lora.Specs(modules)...), nil
}

// load fills the weights from a folder: trained ones are copied to float32, the others placed.
func (m *Model) load(folder *hffolder.Folder) error {
	for _, s := range m.cfg.weightNames() {
		t, _, _ := m.cfg.find(folder, s.Name)
		if !m.params.Has(s.Name) {
			m.frozen.Place(s.Name, t, m.dtype, m.device)
			continue
		}
		values, err := t.Float32s()
		if err != nil {
			return fmt.Errorf("%s: %w", folder.Path, err)
		}
		if err := m.params.Set(s.Name, values); err != nil {
			return fmt.Errorf("%s: %w", folder.Path, err)
		}
	}
	if t, ok := folder.Tensor(finalBias); ok && m.cfg.Kind == kindBART {
		values, err := t.Float32s()
		if err != nil {
			return fmt.Errorf("%s: %w", folder.Path, err)
		}
		m.keepBias(values)
	}
	return nil
}

// keepBias stores final_logits_bias [V] in float32, unless it is zero, as in all published folders: logits without it
// never exist as a whole.
func (m *Model) keepBias(values []float32) {
	for _, v := range values {
		if v != 0 {
			m.frozen.Tensors[finalBias] = torchx.Own(torchx.From(values, len(values)).ToDevice(m.device))
			return
		}
	}
}

// weight returns a tensor of the model, trained or frozen.
func (m *Model) weight(name string) torchx.Tensor {
	if m.params.Has(name) {
		return m.params.Get(name)
	}
	t, ok := m.frozen.Tensors[name]
	if !ok {
		panic(&torchx.OpError{Op: "seq2seq", Msg: "the model has no tensor " + name})
	}
	return t
}

// wire looks the weights up once.
func (m *Model) wire() {
	m.table = m.weight(m.cfg.embedding())
	m.head, m.headScale = m.table, 1
	if m.cfg.Kind == kindT5 {
		m.net = m.newT5()
		if m.cfg.Tied {
			m.headScale = 1 / sqrt(m.cfg.Width)
		} else {
			m.head = m.weight("lm_head.weight")
		}
	} else {
		m.net = m.newBART()
		m.headBias = m.frozen.Tensors[finalBias]
	}
}

// Params returns the trained tensors: float32, whole weights under their names in the folder, adapters under PEFT's.
func (m *Model) Params() *torchx.Params { return m.params }

// Config returns the sizes.
func (m *Model) Config() *Config { return m.cfg }

// Options returns the configuration the model was opened with.
func (m *Model) Options() Options { return m.opt }

// Adapted returns how the adapters are made, nil where there are none.
func (m *Model) Adapted() *lora.Config { return m.adapted }

// MaxSourceTokens is the longest source that should be encoded: the option, else what the model was made for.
func (m *Model) MaxSourceTokens() int {
	switch n := m.opt.MaxSourceTokens; {
	case n != nil && m.cfg.Positions > 0:
		return min(*n, m.cfg.Positions)
	case n != nil:
		return *n
	case m.cfg.Positions > 0:
		return m.cfg.Positions
	}
	return 512 // T5's training length; its relative positions take any
}

// Clone returns a model with its own copy of the trained tensors; all others are shared.
func (m *Model) Clone() *Model {
	c := *m
	specs := make([]torchx.Spec, 0, len(m.params.Names()))
	for _, name := range m.params.Names() {
		specs = append(specs, torchx.Spec{Name: name, Shape: m.params.Shape(name)})
	}
	c.params = torchx.NewParams(specs, m.device)
	c.params.CopyFrom(m.params)
	c.generator = nil
	m.frozen.Hold()
	c.wire()
	return &c
}

// Free releases the trained tensors, and the others when no clone is left.
func (m *Model) Free() {
	if m.generator != nil {
		m.generator.Free()
		m.generator = nil
	}
	m.params.Free()
	m.frozen.Free()
}

// masks returns the generator of dropout masks.
func (m *Model) masks() *torchx.Generator {
	if m.generator == nil {
		m.generator = torchx.NewGenerator(0, m.device)
	}
	return m.generator
}

func (m *Model) onDevice(t torchx.Tensor) torchx.Tensor { return torchx.ToLike(t, m.params.Flat()) }

func (m *Model) int64s(v []int64) torchx.Tensor { return m.onDevice(torchx.From(v, len(v))) }
