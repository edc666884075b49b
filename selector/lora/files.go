package lora

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/registry"
	"fulcrum/internal/regular"
	"fulcrum/internal/tensorfile"
	"fulcrum/selector/weights"
)

const (
	configName  = "adapter_config.json"
	weightsName = "adapter_model.safetensors"

	prefix  = "base_model.model."
	suffixA = ".lora_A.weight"
	suffixB = ".lora_B.weight"
)

// Adapter is the content of an adapter folder.
type Adapter struct {
	Path    string
	Config  Config
	Tensors map[string]Matrix // by KeyA and KeyB
}

// Matrix is A [r, in] or B [out, r], row-major.
type Matrix struct {
	Shape  []int
	Values []float32
}

// refused lists the keys that ask for something else than plain adapters, with the values that don't.
func refused() map[string][]string {
	off := []string{"null", "false", "[]", "{}", `""`}
	keys := map[string][]string{
		"bias":              {`"none"`, "null"},
		"init_lora_weights": {"true", "false", "null", `"gaussian"`, `"eva"`, `"orthogonal"`}, // others change the base weights
	}
	for _, key := range []string{"modules_to_save", "use_dora", "use_qalora", "lora_bias", "fan_in_fan_out", "exclude_modules",
		"layers_to_transform",
		"layer_replication", "trainable_token_indices", "target_parameters", "alora_invocation_tokens", "arrow_config",
		"kasa_config", "monteclora_config", "use_bdlora"} {
		keys[key] = off
	}
	return keys
}

// ParseConfig reads adapter_config.json.
func ParseConfig(raw []byte) (Config, error) {
	var all map[string]json.RawMessage
	if err := jsonwords.Unmarshal(raw, &all); err != nil {
		return Config{}, err
	}
	rules := refused()
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		if value, ok := all[key]; ok && !slices.Contains(rules[key], weights.Compact(value)) {
			return Config{}, fmt.Errorf("%s = %s is not supported (want %s)", key, weights.Compact(value), strings.Join(rules[key], " or "))
		}
	}
	c := Config{Rank: 8, Alpha: 8} // PEFT's defaults
	f := struct {
		*Config
		PeftType string          `json:"peft_type"`
		Targets  json.RawMessage `json:"target_modules"`
	}{&c, "LORA", nil}
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return Config{}, err
	}
	if f.PeftType != "LORA" {
		return Config{}, fmt.Errorf("peft_type = %q, want LORA", f.PeftType)
	}
	if json.Unmarshal(f.Targets, &c.Targets) != nil && json.Unmarshal(f.Targets, &c.Pattern) != nil {
		return Config{}, fmt.Errorf("target_modules = %s, want names or a pattern", weights.Compact(f.Targets))
	}
	switch {
	case len(c.Targets) == 0 && c.Pattern == "":
		return Config{}, fmt.Errorf("target_modules is empty")
	case c.Rank < 1:
		return Config{}, fmt.Errorf("r = %d, want at least 1", c.Rank)
	case !(c.Alpha > 0):
		return Config{}, fmt.Errorf("lora_alpha = %v, want a positive number", c.Alpha)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return Config{}, fmt.Errorf("lora_dropout = %v, want a number in [0, 1)", c.Dropout)
	}
	return c, nil
}

// Read reads an adapter folder in either name layout: before and since transformers 4.52.
func Read(path string) (*Adapter, error) {
	at := filepath.Join(path, configName)
	raw, err := regular.ReadFile(at)
	if err != nil {
		return nil, fmt.Errorf("%s: not an adapter folder: %w", path, err)
	}
	config, err := ParseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	file, err := tensorfile.ReadSafetensors(filepath.Join(path, weightsName))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	a := &Adapter{Path: path, Config: config, Tensors: map[string]Matrix{}}
	for _, t := range file.Tensors {
		if err := a.add(t); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(path, weightsName), err)
		}
	}
	return a, nil
}

// add takes one tensor of the file.
func (a *Adapter) add(t tensorfile.Tensor) error {
	name := strings.Replace(t.Name, ".default.weight", ".weight", 1) // some savers keep the adapter's name
	rest, ok := strings.CutPrefix(name, prefix)
	key := ""
	if module, isA := strings.CutSuffix(rest, suffixA); isA {
		key = KeyA(hffolder.Canonical(module))
	} else if module, isB := strings.CutSuffix(rest, suffixB); isB {
		key = KeyB(hffolder.Canonical(module))
	}
	if !ok || key == "" {
		return fmt.Errorf("unexpected tensor %s: want names like %s", t.Name, KeyA("model.layers.0.self_attn.q_proj"))
	}
	if _, dup := a.Tensors[key]; dup {
		return fmt.Errorf("tensor %s is there twice, in both name layouts", t.Name)
	}
	values, err := t.Float32s()
	if err != nil {
		return err
	}
	a.Tensors[key] = Matrix{t.Shape, slices.Clone(values)} // the file is unmapped
	return nil
}

// Check compares the adapter's tensors with the modules that its configuration selects in a model.
func (a *Adapter) Check(modules []Module) error {
	at := filepath.Join(a.Path, weightsName)
	wanted := map[string]bool{}
	var names []string
	for _, m := range modules {
		for _, w := range []struct {
			key  string
			want []int
		}{{KeyA(m.Name), []int{m.Rank, m.In}}, {KeyB(m.Name), []int{m.Out, m.Rank}}} {
			wanted[w.key] = true
			names = append(names, w.key)
			got, ok := a.Tensors[w.key]
			if !ok {
				return fmt.Errorf("%s: tensor %s is missing (%s adapts %s)", at, w.key, configName, m.Name)
			}
			if !slices.Equal(got.Shape, w.want) {
				return fmt.Errorf("%s: tensor %s has shape %v, want %v", at, w.key, got.Shape, w.want)
			}
		}
	}
	for _, key := range sortedKeys(a.Tensors) {
		if !wanted[key] {
			return fmt.Errorf("%s: unexpected tensor %s%s: %s adapts no such module of this model", at, key,
				registry.DidYouMean(registry.Nearest(key, names)), configName)
		}
	}
	return nil
}

// Write makes path an adapter folder that PEFT reads: tensors are named by KeyA and KeyB.
func Write(path string, c Config, tensors []tensorfile.Tensor) error {
	if err := atomicfile.MkdirAll(path); err != nil {
		return err
	}
	raw, err := c.JSON()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(path, configName), raw, 0o644); err != nil {
		return err
	}
	return tensorfile.WriteSafetensors(filepath.Join(path, weightsName), tensors, map[string]string{"format": "pt"})
}

// JSON returns adapter_config.json.
func (c Config) JSON() ([]byte, error) {
	var targets any = c.Targets
	if c.Pattern != "" {
		targets = c.Pattern
	}
	ranks, alphas := c.RankPattern, c.AlphaPattern
	if ranks == nil {
		ranks = map[string]int{}
	}
	if alphas == nil {
		alphas = map[string]float64{}
	}
	var base any
	if c.BaseModel != "" {
		base = c.BaseModel
	}
	raw, err := json.MarshalIndent(map[string]any{
		"peft_type": "LORA", "task_type": cmp.Or(c.TaskType, "CAUSAL_LM"), "base_model_name_or_path": base, "inference_mode": true,
		"r": c.Rank, "lora_alpha": c.Alpha, "lora_dropout": c.Dropout, "target_modules": targets,
		"rank_pattern": ranks, "alpha_pattern": alphas, "use_rslora": c.RSLoRA,
		"bias": "none", "fan_in_fan_out": false, "init_lora_weights": true, "modules_to_save": nil, "use_dora": false,
	}, "", "  ")
	return append(raw, '\n'), err
}

// Portable returns adapter_config.json for a checkpoint's metadata, without the name of the base model, which does not identify
// the weights.
func (c Config) Portable() (string, error) {
	c.BaseModel = ""
	raw, err := c.JSON()
	return weights.Compact(raw), err
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
