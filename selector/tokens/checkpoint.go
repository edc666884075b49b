package tokens

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// Keys of a checkpoint's metadata, after the section: vl.config.
const (
	metaConfig = ".config" // config.json
	metaBase   = ".base"   // fingerprint of the folder that the weights belong to; absent: a model from scratch, all in the checkpoint
	metaLoRA   = ".lora"   // adapter_config.json, absent without adapters
	metaTuned  = ".tuned"  // the parts that are trained whole
)

// Metadata describes the model for a checkpoint, which holds the trained tensors alone: a model from scratch can be
// rebuilt from it, any other onto its base.
func (w *Weights) Metadata() map[string]string {
	meta := map[string]string{"policy": w.Kind, w.Section + metaConfig: weights.Portable(w.Config)}
	if w.base == "" {
		return meta
	}
	meta[w.Section+metaBase] = w.base
	if len(w.Parts) > 0 {
		meta[w.Section+metaTuned] = strings.Join(w.Parts, ",")
	}
	if w.adapted != nil {
		if config, err := w.adapted.Portable(); err == nil {
			meta[w.Section+metaLoRA] = config
		}
	}
	return meta
}

// Opener makes the models of checkpoints, before their trained weights. C is what the policy reads of config.json.
type Opener[M, C any] struct {
	Parse   func(config []byte) (C, error)
	Scratch func(C) (M, error)                                    // of a model from scratch
	Folder  func(adapted *lora.Config, parts []string) (M, error) // upon its model folder; adapted is nil without adapters
}

type model interface{ Tensors() *Weights }

// OpenCheckpoint rebuilds the model of a training checkpoint. The file says which parts were trained, and how. The folder path
// (SECTION.path) must be the model's base folder, unless the model was trained from scratch.
func OpenCheckpoint[M model, C any](file string, names Names, path *string, open Opener[M, C]) (M, error) {
	var none M
	f, err := tensorfile.ReadSafetensors(file)
	if err != nil {
		return none, err
	}
	defer f.Close()
	if kind := f.Metadata["policy"]; kind != names.Kind {
		return none, fmt.Errorf("%s: a checkpoint of policy %q, want %s", file, kind, names.Kind)
	}
	m, err := rebuild(f.Metadata, names, path, open)
	if err != nil {
		return none, fmt.Errorf("%s: %w", file, err)
	}
	if err := weights.Assign(m.Tensors().params, f); err != nil {
		m.Tensors().Free()
		return none, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}

// rebuild makes the model described by metadata, without its trained weights.
func rebuild[M model, C any](meta map[string]string, names Names, path *string, open Opener[M, C]) (m M, err error) {
	base := meta[names.Section+metaBase]
	switch {
	case base == "" && path != nil:
		return m, fmt.Errorf("holds a whole model from scratch, but %s.path=%s asks for another", names.Section, *path)
	case base == "":
		config, err := open.Parse([]byte(meta[names.Section+metaConfig]))
		if err != nil {
			return m, fmt.Errorf("metadata %s: %w", names.Section+metaConfig, err)
		}
		return open.Scratch(config)
	case path == nil:
		return m, fmt.Errorf("holds the trained part of a larger model: want %s.path, the folder that it was trained on", names.Section)
	}
	var adapted *lora.Config
	if raw := meta[names.Section+metaLoRA]; raw != "" {
		config, err := lora.ParseConfig([]byte(raw))
		if err != nil {
			return m, fmt.Errorf("metadata %s: %w", names.Section+metaLoRA, err)
		}
		adapted = &config
	}
	if m, err = open.Folder(adapted, strings.Split(meta[names.Section+metaTuned], ",")); err != nil {
		return m, err
	}
	if got := m.Tensors().base; got != base {
		m.Tensors().Free()
		return m, fmt.Errorf("was trained on a base model with fingerprint %s, but %s.path=%s has %s", base, names.Section, *path, got)
	}
	return m, nil
}

// SaveAdapter writes the adapters as a PEFT folder. baseName, which may be empty, is the name of the base model in the folder.
// It refuses a model with whole parts trained beside the adapters, which the folder cannot hold: SaveMerged keeps them.
func (w *Weights) SaveAdapter(path, baseName string) (err error) {
	defer torchx.Recover(&err)
	if len(w.Parts) > 0 {
		return usage.Errorf("a PEFT folder holds adapters alone, and %s was trained whole beside them: hf writes the whole model",
			strings.Join(w.Parts, ", "))
	}
	return lora.Save(path, w.adapted, baseName, w.modules, w.params)
}

// WriteMerged writes the whole model as a Hugging Face folder, adapters merged into their weights: W + scale·B·A in
// float32, then rounded to dtype ("float32", "bfloat16" or "float16"; "" = the folder's own). config are keys that
// config.json gets beside torch_dtype, more are tensors beside the weights. The tokenizer's files are not this package's.
func (w *Weights) WriteMerged(path, dtype string, config map[string]any, more ...tensorfile.Tensor) (err error) {
	defer torchx.Recover(&err)
	defer torchx.NoGrad()()
	dtype = cmp.Or(dtype, w.FileType, "float32")
	to, err := weights.FileType(dtype)
	if err != nil {
		return err
	}
	var all map[string]any
	read := json.NewDecoder(bytes.NewReader(w.Config))
	read.UseNumber() // 1.0 stays 1.0
	if err := jsonwords.Decode(read, &all); err != nil {
		return err
	}
	all["torch_dtype"] = dtype
	settle(all, dtype)
	maps.Copy(all, config)
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	for _, s := range w.All {
		t := w.merged(s, to)
		if w.InFolder != nil {
			t.Name = w.InFolder(t.Name)
		}
		more = append(more, t)
	}
	return hffolder.Write(path, append(raw, '\n'), w.generation, more, 0)
}

// settle changes the types that a config.json names for its weights: transformers 5 goes by dtype, and by that of text_config too, older
// versions by torch_dtype. It gives the numbers that transformers wants to be floats (of T5, BART and Qwen2.5-VL) a decimal point: since
// version 5 it refuses a configuration with "dropout": 0.
func settle(config map[string]any, dtype string) {
	floats := []string{"activation_dropout", "attention_dropout", "classifier_dropout", "decoder_layerdrop", "dropout", "dropout_rate",
		"encoder_layerdrop", "init_std", "initializer_factor", "initializer_range", "layer_norm_epsilon", "rms_norm_eps", "rope_theta"}
	for key, value := range config {
		inner, nested := value.(map[string]any)
		number, _ := value.(json.Number)
		switch {
		case nested:
			settle(inner, dtype)
		case (key == "dtype" || key == "torch_dtype") && value != nil:
			config[key] = dtype
		case number != "" && slices.Contains(floats, key) && !strings.ContainsAny(number.String(), ".eE"):
			config[key] = number + ".0"
		}
	}
}

// merged returns a weight with its adapter, on the host.
func (w *Weights) merged(s torchx.Spec, dtype torchx.DType) tensorfile.Tensor {
	defer torchx.Scope()()
	return weights.InFile(s, lora.Merge(w.Weight(s.Name), s.Name, w.modules, w.params), dtype)
}
