package tokens

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/jsonwords"
)

// classes are transformers' classes whose folders are read, with their model_type, by policy.
func classes() map[string]map[string]string {
	return map[string]map[string]string{
		"qwen2_5_vl": {"Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl", "Qwen2VLForConditionalGeneration": "qwen2_vl",
			"Qwen3VLForConditionalGeneration": "qwen3_vl", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3",
			"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "SmolLM3ForCausalLM": "smollm3"},
		"seq2seq": {"T5ForConditionalGeneration": "t5", "T5WithLMHeadModel": "t5", "T5Model": "t5",
			"BartForConditionalGeneration": "bart", "BartModel": "bart"},
	}
}

// ModelType returns the model_type of a config.json's first architecture, or the file's own if it names no architecture. For a model
// that the policy does not read, the error lists the supported ones.
func ModelType(policy string, config []byte) (string, error) {
	var f struct {
		Architectures []string `json:"architectures"`
		ModelType     string   `json:"model_type"`
	}
	if err := jsonwords.Unmarshal(config, &f); err != nil {
		return "", err
	}
	find := func(of map[string]string) (string, bool) {
		if len(f.Architectures) > 0 {
			kind, ok := of[f.Architectures[0]]
			return kind, ok
		}
		return f.ModelType, slices.Contains(slices.Collect(maps.Values(of)), f.ModelType)
	}
	all := classes()
	if kind, ok := find(all[policy]); ok {
		if f.ModelType != "" && f.ModelType != kind {
			return "", fmt.Errorf("architecture %q has model_type %q, the file says %q", f.Architectures[0], kind, f.ModelType)
		}
		return kind, nil
	}
	what := fmt.Sprintf("model_type %q", f.ModelType)
	if len(f.Architectures) > 0 {
		what = fmt.Sprintf("architecture %q", f.Architectures[0])
	}
	var read []string
	for _, other := range slices.Sorted(maps.Keys(all)) {
		if _, ok := find(all[other]); ok {
			return "", fmt.Errorf("%s is not read by policy=%s: policy=%s reads it", what, policy, other)
		}
		read = append(read, strings.Join(slices.Sorted(maps.Keys(all[other])), ", ")+" (policy="+other+")")
	}
	return "", fmt.Errorf("%s is not supported: want %s", what, strings.Join(read, ", or "))
}
