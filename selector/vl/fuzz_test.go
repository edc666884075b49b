package vl

import "testing"

// FuzzParseConfig: whatever config.json holds, sizes that are accepted can be computed with.
func FuzzParseConfig(f *testing.F) {
	raw, err := tinyOptions().Scratch.configJSON(vocabulary())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"architectures": ["Qwen2ForCausalLM"], "vocab_size": 5, "hidden_size": 4, "intermediate_size": 1, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}`))
	f.Add([]byte(`{"model_type": "qwen2_5_vl", "text_config": {"hidden_size": 8}, "vision_config": {}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw)
		if err != nil {
			return
		}
		if c.Heads*c.HeadDim < 2 || c.Heads%c.KVHeads != 0 || c.Sections[0]+c.Sections[1]+c.Sections[2] != c.HeadDim/2 {
			t.Errorf("accepted %+v", c)
		}
		if c.Vision != nil && (c.Vision.Hidden%(4*c.Vision.Heads) != 0 || c.Vision.Window/(c.Vision.Patch*c.Vision.Merge) < 1) {
			t.Errorf("accepted %+v", c.Vision)
		}
	})
}
