package vl

import (
	"encoding/json"
	"strings"
	"testing"
)

// Sizes that no model has are refused before the list of its tensors is made.
func TestAbsurdSizes(t *testing.T) {
	base := func() map[string]any {
		return map[string]any{"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "vocab_size": 100, "hidden_size": 8,
			"intermediate_size": 8, "num_hidden_layers": 1,
			"num_attention_heads": 1, "num_key_value_heads": 1, "rope_scaling": nil,
			"max_position_embeddings": 32}
	}
	parse := func(c map[string]any) (*Config, error) {
		raw, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return ParseConfig(raw)
	}
	c, err := parse(base())
	if err != nil || c.Positions != 32 {
		t.Fatalf("%v, %+v", err, c)
	}
	m := &Model{cfg: c}
	if err := m.CheckPrompt(30, 2); err != nil {
		t.Error(err)
	}
	if err := m.CheckPrompt(30, 3); err == nil || !strings.Contains(err.Error(), "want at most 32 together") {
		t.Error(err)
	}
	for key, value := range map[string]any{"num_hidden_layers": 1_000_000_000, "max_position_embeddings": -1} {
		c := base()
		c[key] = value
		if _, err := parse(c); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s = %v: %v", key, value, err)
		}
	}
}
