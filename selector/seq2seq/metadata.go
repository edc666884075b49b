package seq2seq

import (
	"fmt"

	"fulcrum/internal/tensorfile"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// Kind names the policy in checkpoints and configurations.
const Kind = "seq2seq"

// Keys of a checkpoint's metadata.
const (
	metaConfig = "seq2seq.config" // config.json
	metaBase   = "seq2seq.base"   // fingerprint of the folder that the weights belong to; absent: a model from scratch, all in the checkpoint
	metaLoRA   = "seq2seq.lora"   // adapter_config.json, absent without adapters
	metaTuned  = "seq2seq.tuned"  // "all" where all weights are trained
)

// Metadata describes the model for a checkpoint, which holds the trained tensors alone: a model from scratch can be
// rebuilt from it, any other onto its base.
func (m *Model) Metadata() map[string]string {
	meta := map[string]string{"policy": Kind, metaConfig: weights.Portable(m.cfg.Raw)}
	if m.base == "" {
		return meta
	}
	meta[metaBase] = m.base
	if m.opt.TuneAll {
		meta[metaTuned] = "all"
	}
	if m.adapted != nil {
		if config, err := m.adapted.Portable(); err == nil {
			meta[metaLoRA] = config
		}
	}
	return meta
}

// OpenCheckpoint rebuilds the model of a training checkpoint. What was trained, and how, follows the file; the folder
// options.Path must be the one that it was trained on, unless it was trained from scratch.
func OpenCheckpoint(path string, options Options, device string, seed int64, warn func(string)) (*Model, error) {
	file, err := tensorfile.ReadSafetensors(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if kind := file.Metadata["policy"]; kind != Kind {
		return nil, fmt.Errorf("%s: a checkpoint of policy %q, want %s", path, kind, Kind)
	}
	m, err := rebuild(file.Metadata, options, device, seed, warn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := weights.Assign(m.params, file); err != nil {
		m.Free()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// rebuild makes the model that metadata describes, before its trained weights.
func rebuild(meta map[string]string, options Options, device string, seed int64, warn func(string)) (*Model, error) {
	base := meta[metaBase]
	if base == "" {
		cfg, err := ParseConfig([]byte(meta[metaConfig]))
		if err != nil {
			return nil, fmt.Errorf("metadata %s: %w", metaConfig, err)
		}
		if options.Path != nil {
			return nil, fmt.Errorf("holds a whole model from scratch, but seq2seq.path=%s asks for another", *options.Path)
		}
		return newScratch(options, cfg, device, seed)
	}
	if options.Path == nil {
		return nil, fmt.Errorf("holds the trained part of a larger model: want seq2seq.path, the folder that it was trained on")
	}
	options.Adapter, options.LoRA = nil, lora.Options{Dropout: options.LoRA.Dropout}
	options.TuneAll = meta[metaTuned] == "all"
	var adapted *lora.Config
	if raw := meta[metaLoRA]; raw != "" {
		config, err := lora.ParseConfig([]byte(raw))
		if err != nil {
			return nil, fmt.Errorf("metadata %s: %w", metaLoRA, err)
		}
		adapted = &config
	}
	m, err := openWith(options, adapted, device, seed, warn)
	if err != nil {
		return nil, err
	}
	if m.base != base {
		m.Free()
		return nil, fmt.Errorf("was trained on a base model with fingerprint %s, but seq2seq.path=%s has %s", base, *options.Path, m.base)
	}
	return m, nil
}
