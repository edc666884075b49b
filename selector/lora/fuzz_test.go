package lora

import "testing"

// FuzzParseConfig: whatever adapter_config.json holds, what is accepted selects modules of a positive rank, or says why not.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "rank_pattern": {"0.self_attn.q_proj": 2}}`))
	f.Add([]byte(`{"target_modules": "all-linear", "use_rslora": true}`))
	f.Add([]byte(`{"target_modules": "(", "alpha_pattern": {"[": 1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw)
		if err != nil {
			return
		}
		modules, err := c.Select(layers())
		if err != nil {
			return
		}
		for _, m := range modules {
			if m.Rank < 1 || m.Scale != m.Scale {
				t.Errorf("accepted %+v", m)
			}
		}
	})
}
