package vl

import (
	"encoding/json"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// SaveAdapter writes the adapters as a PEFT folder. baseName, which may be empty, is what the folder says they belong to.
// Whole parts that are trained beside them would be lost, and are refused: SaveMerged keeps them.
func (m *Model) SaveAdapter(path, baseName string) (err error) {
	defer torchx.Recover(&err)
	return lora.Save(path, m.adapted, baseName, m.modules, m.params)
}

// SaveMerged writes the whole model as a Hugging Face folder, adapters merged into their weights: W + scale·B·A in float32,
// then rounded to dtype ("float32", "bfloat16" or "float16"; "" = the folder's own). The tokenizer's files are not this
// package's.
func (m *Model) SaveMerged(path, dtype string) (err error) {
	defer torchx.Recover(&err)
	defer torchx.NoGrad()()
	if dtype == "" {
		if dtype = m.cfg.DType; dtype == "" {
			dtype = "float32"
		}
	}
	to, err := weights.FileType(dtype)
	if err != nil {
		return err
	}
	config, err := withDType(m.folder[0], dtype)
	if err != nil {
		return err
	}
	var tensors []tensorfile.Tensor
	for _, s := range m.cfg.weightNames() {
		tensors = append(tensors, m.merged(s, to))
	}
	return hffolder.Write(path, config, m.folder[1], tensors, 0)
}

// merged returns a weight with its adapter, on the host.
func (m *Model) merged(s torchx.Spec, dtype torchx.DType) tensorfile.Tensor {
	defer torchx.Scope()()
	return weights.InFile(s, lora.Merge(m.weight(s.Name), s.Name, m.modules, m.params), dtype)
}

// withDType returns config.json with another torch_dtype.
func withDType(raw []byte, dtype string) ([]byte, error) {
	var all map[string]any
	if err := jsonwords.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	all["torch_dtype"] = dtype
	delete(all, "dtype")
	out, err := json.MarshalIndent(all, "", "  ")
	return append(out, '\n'), err
}
