package icl

import (
	"path/filepath"
	"testing"

	"fulcrum/experiments/lvlm"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/lvlmtest"
)

// TestServers: through stand-ins of vLLM and SGLang around the same weights, with the model's folder and without, the
// log-probabilities are those of the plain program on transformers.
func TestServers(t *testing.T) {
	folder := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	model := OpenServed(t, folder)
	lines, prompts := askedOf(t)
	for _, kind := range []string{"vllm", "sglang"} {
		for _, path := range []*string{nil, &folder} {
			stand := lvlmtest.Start(t, &lvlmtest.Server{Kind: kind, Model: model, Teacher: path != nil, Template: model.Template()})
			opt := lvlm.DefaultOptions()
			opt.Backend, opt.URL, opt.Path, opt.ImageSize = kind, &stand.URL, path, 0
			scorer, err := lvlm.Open(t.Context(), opt, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := scorer.Score(t.Context(), prompts)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			answers, err := scorer.Answer(t.Context(), prompts)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			for i, l := range lines {
				golden.Close(t, got[i].LogProbs, l.LogProbs, 5e-5)
				if answers[i].Text != l.Answer {
					t.Errorf("%s: prompt %d: answer %q, want %q", kind, i, answers[i].Text, l.Answer)
				}
			}
			scorer.Close()
		}
	}
}
