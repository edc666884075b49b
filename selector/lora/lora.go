// Package lora is low-rank adaptation of linear layers (Hu et al. 2021, arXiv:2106.09685): which modules of a model are
// adapted, how, and the files in which the adapters are kept, PEFT's adapter_config.json and adapter_model.safetensors.
//
//	y = W·x + b + scale·B·(A·dropout(x))        A [r, in], B [out, r], scale = alpha/r, or alpha/√r (rslora)
//
// It knows modules and their tensors, no model.
package lora

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/rng"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
)

// Options configures new adapters (config section vl.lora).
type Options struct {
	// train low-rank adapters of the target modules; the weights themselves stay as they are
	Enabled bool `koanf:"enabled" also:"use_lora,use_peft"`
	// rank r of the adapters
	Rank int `koanf:"rank" range:"[1,inf)" also:"r,lora_r,lora_rank"`
	// the adapters' output is multiplied by alpha / rank
	Alpha float64 `koanf:"alpha" range:"(0,inf)" also:"lora_alpha"`
	// dropout on the adapters' input, in sft and rce only
	Dropout float64 `koanf:"dropout" range:"[0,1)" also:"lora_dropout"`
	// last name components of the linear layers to adapt, in any part of the model (vl: gate_proj, up_proj, down_proj
	// are in the vision tower too)
	TargetModules []string `koanf:"target_modules" also:"lora_target_modules,lora_target"`
	// multiply by alpha / √rank instead (Kalajdzievski 2023)
	RSLoRA bool `koanf:"rslora" also:"use_rslora"`
}

// DefaultOptions adapts the attention of the decoder with rank 8 and alpha 32.
func DefaultOptions() Options {
	return Options{Enabled: true, Rank: 8, Alpha: 32, TargetModules: []string{"q_proj", "k_proj", "v_proj", "o_proj"}}
}

// Config says which modules are adapted and how: the content of adapter_config.json.
type Config struct {
	Rank         int                `json:"r"`
	Alpha        float64            `json:"lora_alpha"`
	Dropout      float64            `json:"lora_dropout"`
	Targets      []string           `json:"-"`             // last components (or longer tails) of module names
	Pattern      string             `json:"-"`             // instead of Targets: a regular expression of whole module names, or all-linear
	RankPattern  map[string]int     `json:"rank_pattern"`  // ranks of the modules whose names end with a match of the key
	AlphaPattern map[string]float64 `json:"alpha_pattern"` // likewise
	RSLoRA       bool               `json:"use_rslora"`
	BaseModel    string             `json:"base_model_name_or_path"` // for readers
	TaskType     string             `json:"-"`                       // PEFT's name of what the model does, written only; "" = CAUSAL_LM
}

// Config returns the adapters that the options ask for.
func (o Options) Config() Config {
	return Config{Rank: o.Rank, Alpha: o.Alpha, Dropout: o.Dropout, Targets: o.TargetModules, RSLoRA: o.RSLoRA}
}

// Module is an adapted linear layer.
type Module struct {
	Name    string // canonical, without .weight
	Public  string // in adapter folders
	In, Out int
	Rank    int
	Alpha   float64
	Scale   float64
}

// Linear is a linear layer that could be adapted.
type Linear struct {
	Name    string
	In, Out int
	Public  string // what adapter folders call it; "" = the same
}

// Linears lists a model's matrices that are not embedding tables, as layers that could be adapted.
func Linears(specs []torchx.Spec, table func(name string) bool) []Linear {
	var out []Linear
	for _, s := range specs {
		name, ok := strings.CutSuffix(s.Name, ".weight")
		if ok && len(s.Shape) == 2 && !table(name) {
			out = append(out, Linear{Name: name, In: s.Shape[1], Out: s.Shape[0]})
		}
	}
	return out
}

// allLinear is PEFT's word for every linear layer but the head.
const allLinear = "all-linear"

// Select returns the layers that the configuration adapts, as PEFT matches them: by the last components of either name.
// A target that matches nothing is an error.
func (c Config) Select(layers []Linear) ([]Module, error) {
	match, err := c.matcher()
	if err != nil {
		return nil, err
	}
	hit := map[string]bool{}
	var out []Module
	for _, l := range layers {
		m := Module{Name: l.Name, Public: cmp.Or(l.Public, l.Name), In: l.In, Out: l.Out}
		target, ok := match(m.Name, m.Public)
		if !ok {
			continue
		}
		hit[target] = true
		if m.Rank, m.Alpha, err = c.sizes(m.Name, m.Public); err != nil {
			return nil, err
		}
		if m.Rank < 1 {
			return nil, fmt.Errorf("rank of %s = %d, want at least 1", m.Name, m.Rank)
		}
		m.Scale = m.Alpha / float64(m.Rank)
		if c.RSLoRA {
			m.Scale = m.Alpha / math.Sqrt(float64(m.Rank))
		}
		out = append(out, m)
	}
	for _, target := range c.Targets {
		if !hit[target] {
			last := list.SetBy(layers, func(l Linear) string { return l.Name[strings.LastIndexByte(l.Name, '.')+1:] })
			return nil, registry.Unknown("target module", target, sortedKeys(last))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("target_modules %q matches no linear layer", c.Pattern)
	}
	return out, nil
}

// matcher returns a function that reports whether a module of these names is adapted, and by which target.
func (c Config) matcher() (func(names ...string) (target string, ok bool), error) {
	switch c.Pattern {
	case "":
		return func(names ...string) (string, bool) {
			for _, target := range c.Targets {
				if slices.ContainsFunc(names, func(name string) bool { return name == target || strings.HasSuffix(name, "."+target) }) {
					return target, true
				}
			}
			return "", false
		}, nil
	case allLinear:
		return func(names ...string) (string, bool) { return allLinear, names[0] != "lm_head" }, nil
	}
	pattern, err := regexp.Compile("^(?:" + c.Pattern + ")$")
	if err != nil {
		return nil, fmt.Errorf("target_modules %q: %w", c.Pattern, err)
	}
	return func(names ...string) (string, bool) {
		return c.Pattern, slices.ContainsFunc(names, pattern.MatchString)
	}, nil
}

// sizes returns rank and alpha of a module of these names.
func (c Config) sizes(names ...string) (rank int, alpha float64, err error) {
	if rank, err = lookup(c.RankPattern, names, c.Rank); err == nil {
		alpha, err = lookup(c.AlphaPattern, names, c.Alpha)
	}
	return rank, alpha, err
}

// public returns c for PEFT, which knows the public names alone: where c needs the others, the modules are listed instead.
func (c Config) public(modules map[string]Module) (Config, error) {
	match, err := c.matcher()
	if err != nil {
		return c, err
	}
	out, same := c, true
	out.Targets, out.Pattern, out.RankPattern, out.AlphaPattern = nil, "", map[string]int{}, map[string]float64{}
	for _, name := range sortedKeys(modules) {
		m := modules[name]
		rank, alpha, err := c.sizes(m.Public)
		if err != nil {
			return c, err
		}
		_, found := match(m.Public)
		same = same && found && rank == m.Rank && alpha == m.Alpha
		out.Targets = append(out.Targets, m.Public)
		if m.Rank != c.Rank {
			out.RankPattern[m.Public] = m.Rank
		}
		if m.Alpha != c.Alpha {
			out.AlphaPattern[m.Public] = m.Alpha
		}
	}
	if same {
		return c, nil
	}
	return out, nil
}

// lookup finds the value of the first key, in alphabetical order, that matches the tail of one of a module's names.
func lookup[T any](patterns map[string]T, names []string, otherwise T) (T, error) {
	for _, key := range sortedKeys(patterns) {
		pattern, err := regexp.Compile(`^(?:.*\.)?(?:` + key + `)$`)
		if err != nil {
			return otherwise, fmt.Errorf("pattern %q: %w", key, err)
		}
		if slices.ContainsFunc(names, pattern.MatchString) {
			return patterns[key], nil
		}
	}
	return otherwise, nil
}

// KeyA and KeyB are the names of a module's two matrices in PEFT's files, and in our checkpoints.
func KeyA(module string) string { return prefix + module + suffixA }
func KeyB(module string) string { return prefix + module + suffixB }

// InitA returns a fresh A [rank, in] of a module: uniform in ±1/√in (Kaiming uniform with a = √5, as PEFT
// starts it). It depends on the seed and the module's name only. B starts at zero.
func InitA(m Module, seed int64) []float32 {
	r := rng.New(seed, "init "+KeyA(m.Name))
	bound := 1 / math.Sqrt(float64(m.In))
	return list.Make(m.Rank*m.In, func(int) float32 { return float32((2*r.Float64() - 1) * bound) })
}

// Specs lists the tensors of adapters among a model's trained ones: A [r, in] and B [out, r] of each module.
func Specs(modules []Module) (specs []torchx.Spec) {
	for _, m := range modules {
		specs = append(specs, torchx.Spec{Name: KeyA(m.Name), Shape: []int{m.Rank, m.In}},
			torchx.Spec{Name: KeyB(m.Name), Shape: []int{m.Out, m.Rank}})
	}
	return specs
}

// Start fills the adapters with those of a folder or, if from is nil, with fresh ones: A random and B zero, so that the model's
// output does not change. layers are the model's, in its order.
func Start(params *torchx.Params, layers []Linear, modules map[string]Module, from *Adapter, seed int64) error {
	if from != nil {
		adapted := make([]Module, 0, len(modules))
		for _, l := range layers {
			if m, ok := modules[l.Name]; ok {
				adapted = append(adapted, m)
			}
		}
		if err := from.Check(adapted); err != nil {
			return err
		}
	}
	for name, m := range modules {
		values := InitA(m, seed)
		if from != nil {
			values = from.Tensors[KeyA(name)].Values
			if err := params.Set(KeyB(name), from.Tensors[KeyB(name)].Values); err != nil {
				return err
			}
		}
		if err := params.Set(KeyA(name), values); err != nil {
			return err
		}
	}
	return nil
}

// Save writes a model's adapters, all that is trained of it, as a PEFT folder. base, which may be empty, is the name of the base model in
// the folder. It refuses a model without adapters (c is nil).
func Save(path string, c *Config, base string, modules map[string]Module, params *torchx.Params) error {
	if c == nil {
		return fmt.Errorf("%s: the model has no adapters", path)
	}
	config, err := c.public(modules)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	config.BaseModel = base
	ours := map[string]string{} // names in the folder
	for name, m := range modules {
		ours[KeyA(name)], ours[KeyB(name)] = KeyA(m.Public), KeyB(m.Public)
	}
	var tensors []tensorfile.Tensor
	values := params.Values()
	for _, name := range params.Names() {
		lo, hi := params.Range(name)
		tensors = append(tensors, tensorfile.FromFloat32s(ours[name], params.Shape(name), values[lo:hi]))
	}
	return Write(path, config, tensors)
}

// Merge returns W + scale·B·A in float32 if the weight w is the matrix of an adapted module; other weights unchanged.
func Merge(w torchx.Tensor, name string, modules map[string]Module, params *torchx.Params) torchx.Tensor {
	module, ok := strings.CutSuffix(name, ".weight")
	m, adapted := modules[module]
	if !ok || !adapted {
		return w
	}
	low := torchx.MatMul(params.Get(KeyB(m.Name)), params.Get(KeyA(m.Name)))
	return torchx.Add(w.To(torchx.Float32), torchx.Scale(low, m.Scale))
}
