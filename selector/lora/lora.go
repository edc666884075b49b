// Package lora is low-rank adaptation of linear layers (Hu et al. 2021, arXiv:2106.09685): which modules of a model are
// adapted, how, and the files in which the adapters are kept, PEFT's adapter_config.json and adapter_model.safetensors.
//
//	y = W·x + b + scale·B·(A·dropout(x))        A [r, in], B [out, r], scale = alpha/r, or alpha/√r (rslora)
//
// It knows modules and their tensors, no model.
package lora

import (
	"fmt"
	"math"
	"regexp"
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
	In, Out int
	Rank    int
	Scale   float64
}

// Linear is a linear layer that could be adapted.
type Linear struct {
	Name    string
	In, Out int
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

// Select returns the layers that the configuration adapts, as PEFT matches them: by the last components of the name.
// A target that matches nothing is an error.
func (c Config) Select(layers []Linear) ([]Module, error) {
	match, err := c.matcher()
	if err != nil {
		return nil, err
	}
	hit := map[string]bool{}
	var out []Module
	for _, l := range layers {
		target, ok := match(l.Name)
		if !ok {
			continue
		}
		hit[target] = true
		m := Module{Name: l.Name, In: l.In, Out: l.Out}
		if m.Rank, err = lookup(c.RankPattern, l.Name, c.Rank); err != nil {
			return nil, err
		}
		alpha, err := lookup(c.AlphaPattern, l.Name, c.Alpha)
		if err != nil {
			return nil, err
		}
		if m.Rank < 1 {
			return nil, fmt.Errorf("rank of %s = %d, want at least 1", m.Name, m.Rank)
		}
		m.Scale = alpha / float64(m.Rank)
		if c.RSLoRA {
			m.Scale = alpha / math.Sqrt(float64(m.Rank))
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

// matcher returns a function that reports whether a module is adapted, and by which target.
func (c Config) matcher() (func(name string) (target string, ok bool), error) {
	switch c.Pattern {
	case "":
		return func(name string) (string, bool) {
			for _, target := range c.Targets {
				if name == target || strings.HasSuffix(name, "."+target) {
					return target, true
				}
			}
			return "", false
		}, nil
	case allLinear:
		return func(name string) (string, bool) { return allLinear, name != "lm_head" }, nil
	}
	pattern, err := regexp.Compile("^(?:" + c.Pattern + ")$")
	if err != nil {
		return nil, fmt.Errorf("target_modules %q: %w", c.Pattern, err)
	}
	return func(name string) (string, bool) { return c.Pattern, pattern.MatchString(name) }, nil
}

// lookup finds the value of the first key, in alphabetical order, that matches the tail of a module's name.
func lookup[T any](patterns map[string]T, name string, otherwise T) (T, error) {
	for _, key := range sortedKeys(patterns) {
		pattern, err := regexp.Compile(`^(?:.*\.)?(?:` + key + `)$`)
		if err != nil {
			return otherwise, fmt.Errorf("pattern %q: %w", key, err)
		}
		if pattern.MatchString(name) {
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

// Save writes a model's adapters as a PEFT folder. base, which may be empty, is the name of the base model in the folder. It
// refuses a model without adapters (c is nil) and a model with other trained weights, for which the folder has no place.
// called, which may be nil, maps module names to the names in the folder.
func Save(path string, c *Config, base string, modules map[string]Module, params *torchx.Params, called func(module string) string) error {
	if c == nil {
		return fmt.Errorf("%s: the model has no adapters", path)
	}
	config := *c
	config.BaseModel = base
	ours := map[string]string{} // names in the folder
	for name := range modules {
		public := name
		if called != nil {
			public = called(name)
		}
		ours[KeyA(name)], ours[KeyB(name)] = KeyA(public), KeyB(public)
	}
	var tensors []tensorfile.Tensor
	values := params.Values()
	for _, name := range params.Names() {
		if ours[name] == "" {
			return fmt.Errorf("%s: %s is trained too, and an adapter folder has no place for it: export the merged model", path, name)
		}
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
