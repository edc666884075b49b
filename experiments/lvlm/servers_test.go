package lvlm_test

import (
	"path/filepath"
	"testing"

	"fulcrum/experiments/lvlm"
	"fulcrum/internal/testkit/golden"
)

// TestServers: through stand-ins of vLLM and SGLang around the same weights, with the model's folder and without, the
// log-probabilities are those of the plain program on transformers.
func TestServers(t *testing.T) {
	folder := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	model := openModel(t, folder)
	lines := []struct { // as scripts/peers/icl.py writes them with transformers
		Prompt   lvlm.Prompt
		LogProbs []float64 `json:"logprobs"`
		Answer   string
	}{}
	golden.JSON(t, "../icl/testdata/likelihoods.json", &lines)
	var prompts []lvlm.Prompt
	for _, l := range lines {
		for k, e := range append(l.Prompt.Shots, l.Prompt.Query) {
			if e.Image = golden.Shared(t, "qwen2_5_vl", e.Image); k < len(l.Prompt.Shots) {
				l.Prompt.Shots[k] = e
			} else {
				l.Prompt.Query = e
			}
		}
		prompts = append(prompts, l.Prompt)
	}
	for _, kind := range []string{"vllm", "sglang"} {
		for _, path := range []*string{nil, &folder} {
			stand := lvlm.Start(t, &lvlm.Server{Kind: kind, Model: model, Teacher: path != nil, Template: model.Template()})
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
