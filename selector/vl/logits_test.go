package vl

import (
	"fmt"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl/processor"
)

// promptLogits returns the logits of all tokens of a prompt, row-major.
func promptLogits(t *testing.T, m *Model, p *processor.Prompt) []float64 {
	t.Helper()
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	in, err := m.pack([]Group{{Prompt: p}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.fillMedia(in, &lora.Pass{})
	return m.Logits(m.forward(&in.rows, &lora.Pass{})).Floats()
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

// TestHiddenStates compares the decoder's rows before the first layer and after each, and the final norm.
func TestHiddenStates(t *testing.T) {
	want := fixture(t, "logits")
	m := openTiny(t, "tiny_tied", nil)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	in, err := m.pack([]Group{{Prompt: prompt(t, "one_image")}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.fillMedia(in, &lora.Pass{})
	x := m.embedRows(&in.rows)
	cos, sin := m.rotation(in.places)
	for i := 0; ; i++ {
		state, _ := floats(t, want, fmt.Sprintf("tiny_tied.one_image.hidden_states.%d", i))
		if i == m.cfg.Layers {
			golden.Close(t, torchx.RMSNorm(x, m.text.norm, m.cfg.Eps).Floats(), state, 5e-5)
			break
		}
		golden.Close(t, x.Floats(), state, 5e-5)
		x = m.decoderLayer(i, x, cos, sin, &in.rows, &lora.Pass{})
	}
}

// TestLogitsOfABatch: prompts packed together have the logits of Hugging Face's left-padded batch where it has no padding.
func TestLogitsOfABatch(t *testing.T) {
	want := fixture(t, "logits")
	all, shape := floats(t, want, "batch.logits") // [2, 52, V]
	mask := ints(t, want, "batch.attention_mask")
	var logits []float64
	for i, counts := range mask {
		if counts == 1 {
			logits = append(logits, all[i*shape[2]:(i+1)*shape[2]]...)
		}
	}
	m := openTiny(t, "tiny_tied", nil)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	in, err := m.pack([]Group{{Prompt: prompt(t, "text")}, {Prompt: prompt(t, "one_image")}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.fillMedia(in, &lora.Pass{})
	golden.Close(t, m.Logits(m.forward(&in.rows, &lora.Pass{})).Floats(), logits, 1e-4)
}
