package vl

import (
	"testing"

	"fulcrum/internal/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/vl/processor"
)

// promptLogits returns the logits of all tokens of a prompt, row-major.
func promptLogits(t *testing.T, m *Model, p *processor.Prompt) []float64 {
	t.Helper()
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	in, err := m.pack([]Group{{Prompt: p}}, true)
	if err != nil {
		t.Fatal(err)
	}
	m.fillMedia(in, &pass{})
	return m.logits(m.forward(&in.rows, &pass{})).Floats()
}

// TestLogits compares every logit with Hugging Face's (spec §2: 1e-4).
func TestLogits(t *testing.T) {
	want := fixture(t, "logits")
	for _, tc := range []struct {
		model   string
		prompts []string
	}{
		{"tiny_tied", []string{"text", "one_image", "two_images", "big_image", "video", "image_and_video"}},
		{"tiny_untied_bf16", []string{"text", "two_images", "video"}},
	} {
		t.Run(tc.model, func(t *testing.T) {
			m := openTiny(t, tc.model, nil)
			for _, name := range tc.prompts {
				t.Run(name, func(t *testing.T) {
					logits, _ := floats(t, want, tc.model+"."+name+".logits")
					golden.Close(t, promptLogits(t, m, prompt(t, name)), logits, 1e-4)
				})
			}
		})
	}
}
