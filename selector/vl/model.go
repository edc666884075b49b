// Package vl is the vision-language policy: Qwen2.5-VL (and the text-only Qwen2 and Qwen2.5), loaded from a Hugging
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

	"fulcrum/internal/hffolder"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// Model is Qwen2.5-VL with its trainable parts.
type Model struct {
	cfg    *Config
	opt    Options
	device string
	dtype  torchx.DType // of the computation, and of frozen weights but for matrices that stay as they are in the file
	seed   int64

	params  *torchx.Params // trained: float32
	frozen  *frozen
	adapted *lora.Config // nil: no adapters
	modules map[string]lora.Module

	text   decoder
	vision *tower // nil: text only
	// tunesVision says that something of the tower or the merger is trained, whole or by adapters: pictures' vectors have
	// gradients then, and change.
	tunesVision bool
	rope        *rope

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
		return nil, fmt.Errorf("vl.path is null: want a model folder")
	}
	folder, err := hffolder.Open(*options.Path)
	if err != nil {
		return nil, fmt.Errorf("vl.path: %w", err)
	}
	m, err := open(folder, options, adapted, device, seed, warn)
	if err != nil {
		folder.Close()
		return nil, err
	}
	return m, nil
}

// CheckPrompt refuses a prompt that leaves no room for a completion of so many tokens: beyond the positions that it was
// made for a model computes for long, and nothing sensible.
func (m *Model) CheckPrompt(tokens, completion int) error {
	if p := m.cfg.Positions; p > 0 && tokens+completion > p {
		return fmt.Errorf("the prompt has %d tokens and the completion up to %d: want at most %d together (max_position_embeddings in config.json)", tokens, completion, p)
	}
	return nil
}

func open(folder *hffolder.Folder, options Options, adapted *lora.Config, device string, seed int64, warn func(string)) (*Model, error) {
	cfg, err := ParseConfig(folder.Config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder.Path, "config.json"), err)
	}
	if err := options.fits(cfg); err != nil {
		return nil, err
	}
	if err := folder.CheckLayers("num_hidden_layers", cfg.Layers); err != nil {
		return nil, err
	}
	if v := cfg.Vision; v != nil {
		if err := folder.CheckLayers("vision_config.depth", v.Depth); err != nil {
			return nil, err
		}
	}
	var want []hffolder.Want
	for _, s := range cfg.weightNames() {
		want = append(want, hffolder.Want{Name: s.Name, Shape: s.Shape})
	}
	if err := folder.Check(want, cfg.bare); err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg, opt: options, device: device, seed: seed, folder: [2][]byte{folder.Config, folder.Generation}, base: folder.Fingerprint()}
	if m.generation, err = parseGeneration(folder.Generation); err != nil {
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
			return nil, fmt.Errorf("vl.adapter: %w", err)
		}
		m.adapted = &adapter.Config
	case options.LoRA.Enabled:
		config := options.LoRA.Config()
		m.adapted = &config
	}
	specs, err := m.trainable()
	if err != nil {
		return nil, err
	}
	if err := weights.FitHost(cfg.weightNames(), specs, cfg.DType == "bfloat16", m.dtype, device); err != nil {
		return nil, err
	}
	m.params = torchx.NewParams(specs, device)
	m.frozen = newFrozen(folder)
	err = torchx.Try(func() error {
		if err := m.load(folder); err != nil {
			return err
		}
		if err := lora.Start(m.params, cfg.linears(), m.modules, adapter, seed); err != nil {
			return fmt.Errorf("vl.adapter: %w", err)
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

// computeType resolves vl.dtype.
func computeType(option, file, device string, warn func(string)) (torchx.DType, error) {
	name := option
	if name == "auto" || name == "" {
		if name = file; name == "" {
			name = "float32"
		}
	}
	switch {
	case name == "float16" && device == "cpu":
		if warn != nil {
			warn("vl.dtype: float16 has no fast arithmetic on the CPU; computing in float32")
		}
		return torchx.Float32, nil
	case name == "float16":
		return torchx.Float16, nil
	case name == "bfloat16" && device == "cpu" && option != name: // forty times as slow as float32 without instructions for it
		return torchx.Float32, nil
	case name == "bfloat16":
		return torchx.BFloat16, nil
	case name == "float32":
		return torchx.Float32, nil
	}
	return 0, fmt.Errorf("vl.dtype=%s (torch_dtype of config.json: %q): want float32, bfloat16 or float16", option, file)
}

// CheckTraining refuses to train a model that computes in float16: gradients below 6e-8 are 0 there, and there is no loss
// scaling to lift them.
func (m *Model) CheckTraining() error {
	if m.dtype != torchx.Float16 {
		return nil
	}
	why := ""
	if m.opt.DType != "float16" {
		why = " (torch_dtype of the folder's config.json)"
	}
	return fmt.Errorf("vl.dtype=%s: training in float16%s loses small gradients, there is no loss scaling; want vl.dtype=bfloat16, or float32 where the device has no bfloat16", m.opt.DType, why)
}

// trainable lists the trained tensors: whole weights under their own names, adapters under PEFT's. It fills modules.
func (m *Model) trainable() ([]torchx.Spec, error) {
	var specs []torchx.Spec
	for _, s := range m.cfg.weightNames() {
		if m.opt.tuned(s.Name) {
			specs = append(specs, s)
		}
	}
	m.modules = map[string]lora.Module{}
	if m.adapted == nil {
		return specs, nil
	}
	modules, err := m.adapted.Select(m.cfg.linears())
	if err != nil {
		if m.opt.Adapter != nil {
			return nil, fmt.Errorf("vl.adapter=%s is no adapter of this model: %w", *m.opt.Adapter, err)
		}
		return nil, fmt.Errorf("vl.lora: %w", err)
	}
	for _, a := range modules {
		m.modules[a.Name] = a
	}
	return append(specs, lora.Specs(modules)...), nil
}

// load fills the weights from a folder: trained ones are copied to float32, the others placed.
func (m *Model) load(folder *hffolder.Folder) error {
	for _, s := range m.cfg.weightNames() {
		t, _ := folder.Tensor(s.Name)
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
	return nil
}

// weight returns a tensor of the model, trained or frozen.
func (m *Model) weight(name string) torchx.Tensor {
	if m.params.Has(name) {
		return m.params.Get(name)
	}
	t, ok := m.frozen.Tensors[name]
	if !ok {
		panic(&torchx.OpError{Op: "vl", Msg: "the model has no tensor " + name})
	}
	return t
}

// wire looks the weights up once.
func (m *Model) wire() {
	m.text = m.newDecoder()
	m.rope = newRope(m.cfg)
	if m.cfg.Vision != nil {
		m.vision = m.newTower()
		m.tunesVision = slices.ContainsFunc(m.params.Names(), isVisual)
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
	m.frozen.free()
}

// masks returns the generator of dropout masks.
func (m *Model) masks() *torchx.Generator {
	if m.generator == nil {
		m.generator = torchx.NewGenerator(0, m.device)
	}
	return m.generator
}
