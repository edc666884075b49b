package tokens

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// Names are what a kind of policy is called.
type Names struct {
	Section string // of the configuration, such as vl: errors and metadata begin with it
	Kind    string // in checkpoints and as value of policy, such as qwen2_5_vl
}

// Layout says which tensors the model of a configuration has, and which of them are trained.
type Layout struct {
	Names
	Config    []byte                   // config.json
	FileType  string                   // torch_dtype of the folder's weights, "" when it does not say
	Vocab     int                      // tokens
	All       []torchx.Spec            // every tensor under its name in the published folders, in the order of the computation
	Linears   []lora.Linear            // layers that adapters can be put on
	Targets   []string                 // modules that adapters go on where the options name none
	TaskType  string                   // PEFT's name of what the model does; "" = CAUSAL_LM
	InFolder  func(name string) string // what an exported folder calls a tensor; nil = the same
	NoFloat16 bool                     // activations overflow float16: the computation is float32 instead
	Tuned     func(string) bool        // reports whether a tensor is trained whole
	Parts     []string                 // what checkpoints call the parts of a folder's model that are trained whole

	// Find returns a folder's tensor; nil = the one of that name.
	Find func(folder *hffolder.Folder, name string) tensorfile.Tensor
}

// Options are the keys that the sections of all token policies have.
type Options struct {
	// folder of a model as Hugging Face saves it (docs/model_folders.md), a run or a checkpoint; null = scratch
	Path *string `koanf:"path" also:"model_name_or_path,model_path,model,model_name"`
	// PEFT adapter folder to start from; its rank, alpha and target modules win over lora's
	Adapter *string `koanf:"adapter"`
	// type of computation and frozen weights; auto = the folder's torch_dtype, on the CPU float32. Trained weights are float32
	DType string `koanf:"dtype" also:"torch_dtype,precision,fp16=float16,half=float16,bf16=bfloat16,fp32=float32,float=float32"`

	// low-rank adapters; target_modules=[] = queries and values (of seq2seq)
	LoRA lora.Options `koanf:"lora" when:".enabled"`
	// keep only each layer's input for the backward pass and compute the rest again: less memory, a third more time
	GradientCheckpointing bool `koanf:"gradient_checkpointing"`
	// how rollouts are drawn, beside their phase's sample_temperature
	Generation SamplingOptions `koanf:"generation"`
}

// Adapts reports whether the options alone have something trained: a model from scratch is, and adapters are.
func (o Options) Adapts() bool { return o.Path == nil || o.LoRA.Enabled || o.Adapter != nil }

// Validate refuses adapters without a folder.
func (o Options) Validate() error {
	return option.Want(o.Path != nil || o.Adapter == nil, "adapter", "want path: adapters belong to a model folder")
}

// Weights are the tensors of a model: those that are trained, low-rank adapters among them, and those that stay as the
// model folder has them.
type Weights struct {
	Layout
	DType torchx.DType // of the computation, and of frozen weights but for matrices that stay as they are in the file

	// The head, which the model sets: logits are hidden·Headᵀ + HeadBias.
	Head     torchx.Tensor // [V, width]
	HeadBias torchx.Tensor // [V], or undefined

	// Joined asks for the frozen weights of layers that read the same rows behind each other, for one product (Builder.Group):
	// so they are on CUDA. On the CPU they stay mapped in their file.
	Joined bool

	// Warn hears of generations that are slower than they need be; nil = nobody does.
	Warn func(string)

	options Options
	device  string
	slow    *int           // generations whose steps could not be recorded, of these weights and their copies
	params  *torchx.Params // trained: float32
	frozen  *weights.Frozen
	adapted *lora.Config // nil: no adapters
	modules map[string]lora.Module

	generation []byte // generation_config.json, for export; nil = none
	base       string // fingerprint of the folder; "" from scratch

	generator *torchx.Generator // of dropout masks; made when needed
}

// OpenFolder opens the model folder that SECTION.path names, reads its config.json and passes both to load, which owns the folder unless
// it fails.
func OpenFolder[M, C any](names Names, path *string, parse func([]byte) (C, error),
	load func(*hffolder.Folder, C) (M, error)) (m M, err error) {
	if path == nil {
		return m, fmt.Errorf("%s.path is null: want a model folder", names.Section)
	}
	folder, err := hffolder.Open(*path)
	if err != nil {
		return m, fmt.Errorf("%s.path: %w", names.Section, err)
	}
	config, err := parse(folder.Config)
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Join(folder.Path, "config.json"), err)
	} else {
		m, err = load(folder, config)
	}
	if err != nil {
		folder.Close()
	}
	return m, err
}

// Load reads the weights of a folder, and the adapters of options.Adapter where it is given, else those that adapted
// describes, else fresh ones from seed where options.LoRA asks for them. What nobody trains stays mapped in the file where
// device and type allow it. warn, which may be nil, hears of the choices that a user might not expect.
func Load(folder *hffolder.Folder, layout Layout, options Options, adapted *lora.Config, device string, seed int64,
	warn func(string)) (*Weights, error) {
	w := &Weights{Layout: layout, options: options, device: device, adapted: adapted, slow: new(int),
		Joined:     strings.HasPrefix(device, "cuda"),
		generation: folder.Generation, base: folder.Fingerprint()}
	specs, adapter, err := w.prepare(warn)
	if err != nil {
		return nil, err
	}
	w.params, w.frozen = torchx.NewParamsOf(w.paramType(), specs, device), weights.NewFrozen(folder)
	err = torchx.Try(func() error {
		if err := w.read(folder); err != nil {
			return err
		}
		if err := lora.Start(w.params, w.Linears, w.modules, adapter, seed); err != nil {
			return fmt.Errorf("%s.adapter: %w", w.Section, err)
		}
		return nil
	})
	if err != nil {
		w.frozen.Disown() // the caller closes it
		w.Free()
		return nil, err
	}
	w.frozen.Placed()
	return w, nil
}

// Scratch makes weights of which start gives the values, all of them trained. generation is the generation_config.json of
// an exported folder, nil = none.
func Scratch(layout Layout, options Options, generation []byte, device string, start func(torchx.Spec) []float32) (*Weights, error) {
	w := &Weights{Layout: layout, options: Options{DType: options.DType}, device: device, slow: new(int), generation: generation}
	var err error
	if w.DType, err = ComputeType(layout, options.DType, "float32", device, nil); err != nil {
		return nil, err
	}
	specs, err := w.trainable()
	if err != nil {
		return nil, fmt.Errorf("%s.scratch: %w", w.Section, err)
	}
	err = torchx.Try(func() error {
		w.params = torchx.NewParamsOf(w.paramType(), specs, device)
		for _, s := range specs {
			if err := w.params.Set(s.Name, start(s)); err != nil {
				return err
			}
		}
		return nil
	})
	w.frozen = weights.NewFrozen(nil)
	return w, err
}

// prepare decides on the types and the adapters, and lists the trained tensors.
func (w *Weights) prepare(warn func(string)) (specs []torchx.Spec, adapter *lora.Adapter, err error) {
	if w.DType, err = ComputeType(w.Layout, w.options.DType, w.FileType, w.device, warn); err != nil {
		return nil, nil, err
	}
	if adapter, err = w.chooseAdapters(); err != nil {
		return nil, nil, err
	}
	specs, err = w.trainable()
	return specs, adapter, err
}

// chooseAdapters decides how adapters are made, and returns those of a folder, nil = others or none.
func (w *Weights) chooseAdapters() (adapter *lora.Adapter, err error) {
	switch {
	case w.adapted != nil:
	case w.options.Adapter != nil:
		if adapter, err = lora.Read(*w.options.Adapter); err != nil {
			return nil, fmt.Errorf("%s.adapter: %w", w.Section, err)
		}
		w.adapted = &adapter.Config
	case w.options.LoRA.Enabled:
		config := w.options.LoRA.Config()
		if len(config.Targets) == 0 {
			config.Targets = w.Targets
		}
		w.adapted = &config
	default:
		return nil, nil
	}
	w.adapted.TaskType = w.TaskType
	return adapter, nil
}

// ComputeType resolves SECTION.dtype, where file is the type of the folder's weights.
func ComputeType(layout Layout, option, file, device string, warn func(string)) (torchx.DType, error) {
	name := option
	if name == "auto" || name == "" {
		name = cmp.Or(file, "float32")
	}
	switch {
	case name == "float16":
		why := "float16 has no fast arithmetic on the CPU"
		if layout.NoFloat16 {
			why = "the folder's weights are float16, whose range these models exceed"
		} else if device != "cpu" {
			return torchx.Float16, nil
		}
		if warn != nil {
			warn(layout.Section + ".dtype: " + why + "; computing in float32")
		}
		return torchx.Float32, nil
	case name == "bfloat16" && device == "cpu" && option != name: // forty times as slow as float32 without instructions for it
		return torchx.Float32, nil
	case name == "bfloat16":
		return torchx.BFloat16, nil
	case name == "float32":
		return torchx.Float32, nil
	case option == "float64": // configurations cannot ask for it: what tests compare the others with
		return torchx.Float64, nil
	}
	want := "float32, bfloat16 or float16"
	if layout.NoFloat16 {
		want = "float32 or bfloat16"
	}
	return 0, fmt.Errorf("%s.dtype=%s (torch_dtype of config.json: %q): want %s", layout.Section, option, file, want)
}

// paramType is the type of trained tensors: float32 under 16 bits too.
func (w *Weights) paramType() torchx.DType {
	if w.DType == torchx.Float64 {
		return torchx.Float64
	}
	return torchx.Float32
}

// trainable lists the trained tensors: whole weights under their own names, adapters under PEFT's. It fills modules, and
// refuses what the host's memory cannot hold.
func (w *Weights) trainable() ([]torchx.Spec, error) {
	specs := list.Filter(w.All, func(s torchx.Spec) bool { return w.Tuned(s.Name) })
	w.modules = map[string]lora.Module{}
	if w.adapted != nil {
		modules, err := w.adapted.Select(w.Linears)
		if err != nil && w.options.Adapter != nil {
			return nil, fmt.Errorf("%s.adapter=%s is no adapter of this model: %w", w.Section, *w.options.Adapter, err)
		} else if err != nil {
			return nil, fmt.Errorf("%s.lora: %w", w.Section, err)
		}
		for _, m := range modules {
			w.modules[m.Name] = m
		}
		specs = append(specs, lora.Specs(modules)...)
	}
	return specs, weights.FitHost(w.All, specs, w.FileType == "bfloat16", w.DType, w.device)
}

// read fills the weights from a folder: trained ones are copied to float32, the others placed.
func (w *Weights) read(folder *hffolder.Folder) error {
	for _, s := range w.All {
		t, _ := folder.Tensor(s.Name)
		if w.Find != nil {
			t = w.Find(folder, s.Name)
		}
		if !w.params.Has(s.Name) {
			w.frozen.Place(s.Name, t, w.DType, w.device)
			continue
		}
		values, err := t.Float32s()
		if err == nil {
			err = w.params.Set(s.Name, values)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", folder.Path, err)
		}
	}
	return nil
}

// Tensors returns the weights themselves: a model that embeds them is a Model.
func (w *Weights) Tensors() *Weights { return w }

// Params returns the trained tensors: float32, whole weights under their names in the folder, adapters under PEFT's.
func (w *Weights) Params() *torchx.Params { return w.params }

// Frozen returns the weights that nobody trains.
func (w *Weights) Frozen() *weights.Frozen { return w.frozen }

// Adapted returns how the adapters are made, nil where there are none.
func (w *Weights) Adapted() *lora.Config { return w.adapted }

// Size is the number of the model's weights, trained or not, adapters included.
func (w *Weights) Size() int {
	n := weights.Numel(w.All...)
	for _, m := range w.modules {
		n += m.Rank * (m.In + m.Out)
	}
	return n
}

// Weight returns a tensor of the model, trained or frozen.
func (w *Weights) Weight(name string) torchx.Tensor {
	if w.params.Has(name) {
		return w.params.Get(name)
	}
	t, ok := w.frozen.Tensors[name]
	if !ok {
		Fail(w.Section, "the model has no tensor %s", name)
	}
	return t
}

// Known refuses ids outside the vocabulary, which libtorch would not catch on every device. what says of what they are.
func (w *Weights) Known(ids []int64, what string) error {
	for i, id := range ids {
		if id < 0 || id >= int64(w.Vocab) {
			return fmt.Errorf("token %d%s has id %d, want 0 … %d", i, what, id, w.Vocab-1)
		}
	}
	return nil
}

// Apply returns x·Wᵀ + bias and the adapter's share.
func (w *Weights) Apply(l *lora.Layer, x torchx.Tensor, p *lora.Pass) torchx.Tensor {
	return l.Apply(x, w.DType, p)
}

// As returns a weight, which may be undefined, in the type of computation.
func (w *Weights) As(x torchx.Tensor) torchx.Tensor { return weights.As(x, w.DType) }

// OnDevice returns a tensor where the weights lie.
func (w *Weights) OnDevice(t torchx.Tensor) torchx.Tensor { return torchx.ToLike(t, w.params.Flat()) }

// Int64s returns numbers where the weights lie [n].
func (w *Weights) Int64s(v []int64) torchx.Tensor { return w.OnDevice(torchx.From(v, len(v))) }

// Zeros returns zeros of the type of computation where the weights lie.
func (w *Weights) Zeros(shape ...int) torchx.Tensor {
	return torchx.FullLike(w.params.Flat(), 0, w.DType, shape...)
}

// Logits returns the scores of all tokens [N, V] float32 for rows that are ready for the head.
func (w *Weights) Logits(hidden torchx.Tensor) torchx.Tensor {
	z := torchx.Linear(hidden, w.As(w.Head), torchx.Tensor{}).To(torchx.Float32)
	if w.HeadBias.Nil() {
		return z
	}
	return torchx.Add(z, w.HeadBias)
}

// TokenLogp returns log-probability and entropy of each row's target [N] float32. Without a bias the logits never exist as
// a whole.
func (w *Weights) TokenLogp(hidden torchx.Tensor, targets []int64, temperature float64) (logp, entropy torchx.Tensor) {
	if w.HeadBias.Nil() {
		return torchx.TokenLogp(hidden, w.As(w.Head), w.Int64s(targets), temperature)
	}
	all := torchx.LogSoftmax(torchx.Scale(w.Logits(hidden), 1/temperature), 1)
	logp = torchx.Squeeze(torchx.Gather(all, 1, torchx.Reshape(w.Int64s(targets), -1, 1)), 1)
	return logp, torchx.Neg(torchx.Sum(torchx.Mul(torchx.Exp(all), all), 1))
}

// tokenKL returns KL(π ‖ reference) of each row's distribution [N] float32 at temperature 1, without gradient.
func (w *Weights) tokenKL(hidden torchx.Tensor, reference *Weights, theirs torchx.Tensor) torchx.Tensor {
	if w.HeadBias.Nil() && reference.HeadBias.Nil() {
		return torchx.TokenKL(hidden, w.As(w.Head), theirs, reference.As(reference.Head))
	}
	p, q := torchx.LogSoftmax(w.Logits(hidden), 1), torchx.LogSoftmax(reference.Logits(theirs), 1)
	return torchx.Sum(torchx.Mul(torchx.Exp(p), torchx.Sub(p, q)), 1)
}

// pass says how layers compute: with dropout on the adapters' input in training, where they have any.
func (w *Weights) pass(b *selector.Batch, opt selector.ForwardOptions) *lora.Pass {
	if !opt.Train || w.adapted == nil || w.adapted.Dropout == 0 {
		return &lora.Pass{}
	}
	if w.generator == nil {
		w.generator = torchx.NewGenerator(0, w.device)
	}
	return &lora.Pass{Dropout: w.adapted.Dropout, Seed: opt.DropoutSeed, Generator: w.generator, Queries: b.Queries}
}

// Copy returns weights with their own copy of the trained tensors; all others are shared.
func (w *Weights) Copy() *Weights {
	c := *w
	specs := list.Map(w.params.Names(), func(name string) torchx.Spec { return torchx.Spec{Name: name, Shape: w.params.Shape(name)} })
	c.params = torchx.NewParams(specs, w.device)
	c.params.CopyFrom(w.params)
	c.generator = nil
	w.frozen.Hold()
	return &c
}

// Free releases the trained tensors, and the others when no copy is left.
func (w *Weights) Free() {
	if w.generator != nil {
		w.generator.Free()
		w.generator = nil
	}
	w.params.Free()
	w.frozen.Free()
}

func (w *Weights) op(name string) string { return w.Section + "." + name }

// fail is Fail of an operation of the policy.
func (w *Weights) fail(op, format string, args ...any) { Fail(w.op(op), format, args...) }
