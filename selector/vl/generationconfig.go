package vl

import (
	"encoding/json"
	"fmt"

	"fulcrum/internal/jsonwords"
	"fulcrum/selector/tokens"
)

// GenerationConfig holds the keys of a folder's generation_config.json, or else of config.json; nil for a missing key.
type GenerationConfig struct {
	tokens.FolderSampling
	EOS       []int64 // the ids that end a completion
	ForcedEOS []int64 // the last token, where the length limit is reached, is one of these; none = free
}

// parseGeneration reads generation_config.json; raw may be nil.
func parseGeneration(raw []byte) (g GenerationConfig, err error) {
	if raw == nil {
		return g, nil
	}
	var f struct {
		EOS       json.RawMessage `json:"eos_token_id"`
		ForcedEOS json.RawMessage `json:"forced_eos_token_id"`
	}
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return g, err
	}
	if g.EOS, err = tokens.ParseIDs(f.EOS); err != nil {
		return g, fmt.Errorf("eos_token_id: %w", err)
	}
	if g.ForcedEOS, err = tokens.ParseIDs(f.ForcedEOS); err != nil {
		return g, fmt.Errorf("forced_eos_token_id: %w", err)
	}
	g.FolderSampling, err = tokens.ParseSampling(raw)
	return g, err
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
