package vl

import (
	"encoding/json"
	"fmt"

	"fulcrum/internal/jsonwords"
	"fulcrum/selector/tokens"
)

// GenerationConfig is what a folder's generation_config.json says; nil where it does not.
type GenerationConfig struct {
	tokens.FolderSampling
	EOS []int64 // the ids that end a completion
}

// parseGeneration reads generation_config.json; raw may be nil.
func parseGeneration(raw []byte) (GenerationConfig, error) {
	var g GenerationConfig
	if raw == nil {
		return g, nil
	}
	var f struct {
		tokens.FolderSampling
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return g, err
	}
	eos, err := tokens.ParseIDs(f.EOS)
	if err != nil {
		return g, fmt.Errorf("eos_token_id: %w", err)
	}
	return GenerationConfig{f.FolderSampling, eos}, nil
}

// Generation returns what the model's folder says of generation.
func (m *Model) Generation() GenerationConfig { return m.generation }

// EOS returns the ids that end a completion: generation_config.json's, else config.json's.
func (m *Model) EOS() []int64 {
	if m.generation.EOS != nil {
		return m.generation.EOS
	}
	return m.cfg.EOS
}
