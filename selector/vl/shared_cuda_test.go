package vl

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// TestSharedOnCUDA: shared prompts have the log-probabilities on a device that they have on the CPU, and those of separate
// sequences there.
func TestSharedOnCUDA(t *testing.T) {
	if !torchx.CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	groups := sharedPrompts(t)
	score := func(device, dtype string, shared bool) (all []float64) {
		path := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
		opt := DefaultOptions()
		opt.Path, opt.DType, opt.LoRA.Enabled = &path, dtype, false
		there, err := Open(opt, device, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer there.Free()
		run := there.LogProbs
		if shared {
			run = Shared{there}.LogProbs
		}
		logp, err := run(groups)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range logp {
			for _, c := range g {
				all = append(all, c...)
			}
		}
		return all
	}
	want := score("cpu", "float32", false)
	for _, c := range []struct {
		dtype  string
		shared bool
		most   float64
	}{{"float32", true, 2e-3}, {"float32", false, 2e-3}, {"bfloat16", true, 0.6}, {"bfloat16", false, 0.6}} {
		worst, at := 0.0, 0
		got := score("cuda:0", c.dtype, c.shared)
		for i := range want {
			if d := math.Abs(got[i] - want[i]); !(d <= worst) {
				worst, at = d, i
			}
		}
		t.Logf("%s, shared %v: %.3g nats at token %d of %d (%.4g, want %.4g)", c.dtype, c.shared, worst, at, len(want), got[at], want[at])
		if !(worst <= c.most) {
			t.Errorf("%s, shared %v: off by %.3g nats, want at most %g", c.dtype, c.shared, worst, c.most)
		}
	}
}

// BenchmarkSharedScores scores the answers of a search's step with Qwen2.5-VL-3B's shape on CUDA (elsewhere a tiny one): 5 beams with
// each of 60 candidates, pictures of 144 tokens, with and without shared demonstrations, and the time of the pictures alone.
func BenchmarkSharedScores(b *testing.B) {
	device, dtype, candidates, side := "cpu", "float32", 6, 4
	config := `{"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "torch_dtype": "bfloat16",
		"vocab_size": %d, "hidden_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": 2,
		"intermediate_size": %d, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": true,
		"max_position_embeddings": 32768, "image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8,
		"rope_scaling": {"type": "mrope", "mrope_section": %s}, "vision_config": {"depth": %d, "hidden_size": %d,
		"intermediate_size": %d, "num_heads": %d, "out_hidden_size": %d, "window_size": 112, "fullatt_block_indexes": %s,
		"tokens_per_second": 2}}`
	text := fmt.Sprintf(config, 640, 64, 2, 4, 128, "[2, 3, 3]", 2, 64, 128, 4, 64, "[1]")
	if torchx.CUDAAvailable() {
		device, dtype, candidates, side = "cuda:0", "bfloat16", 60, 24
		text = fmt.Sprintf(config, 151936, 2048, 36, 16, 11008, "[16, 24, 24]", 32, 1280, 3420, 16, 2048, "[7, 15, 23, 31]")
	}
	opt := DefaultOptions()
	opt.DType, opt.LoRA.Enabled = dtype, false
	m, err := NewFrozen(opt, []byte(text), device, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Free()
	r := rand.New(rand.NewPCG(1, 2))
	example := func(i int) (ids []int64, p pixels.Patches) {
		p = pixels.Patches{Rows: side * side, Grid: [3]int{1, side, side}, Key: fmt.Sprint("picture ", i)}
		p.Data = make([]float32, p.Rows*m.cfg.Vision.PatchSize())
		for k := range p.Data {
			p.Data[k] = float32(r.NormFloat64())
		}
		for range p.Rows / m.cfg.Vision.Cell() {
			ids = append(ids, 5)
		}
		for range 24 {
			ids = append(ids, int64(10+r.IntN(600)))
		}
		return ids, p
	}
	var ids [][]int64
	var pictures []pixels.Patches
	for i := range candidates + 1 {
		a, p := example(i)
		ids, pictures = append(ids, a), append(pictures, p)
	}
	query := candidates
	var groups []Group
	tokens := 0
	for beam := range 5 {
		for c := range candidates {
			if c == beam {
				continue
			}
			p := &processor.Prompt{IDs: []int64{9, 9, 9}}
			for _, e := range []int{beam, c, query} {
				p.IDs, p.Images = append(p.IDs, ids[e]...), append(p.Images, pictures[e])
			}
			tokens += len(p.IDs) + 4
			groups = append(groups, Group{Prompt: p, Completions: [][]int64{{20, 21, 22, 23}}})
		}
	}
	report := func(what string, n int, start time.Time) {
		s := time.Since(start).Seconds()
		say(b, "%s: %d sequences of %d tokens in %.3f s, %.1f a second", what, n, tokens/len(groups), s, float64(n)/s)
	}
	start := time.Now()
	if _, err := (Shared{m}).LogProbs(groups); err != nil {
		b.Fatal(err)
	}
	report("shared, first time, with the pictures", len(groups), start)
	for range 2 {
		start = time.Now()
		if _, err := (Shared{m}).LogProbs(groups); err != nil {
			b.Fatal(err)
		}
		report("shared, pictures remembered", len(groups), start)
	}
	part := groups[:min(48, len(groups))]
	start = time.Now()
	for from := 0; from < len(part); from += 16 {
		if _, err := m.LogProbs(part[from:min(from+16, len(part))]); err != nil {
			b.Fatal(err)
		}
	}
	report("separate, 16 at a time, pictures remembered", len(part), start)
	m.features.Clear()
	start = time.Now()
	if _, err := m.LogProbs(part[:1]); err != nil {
		b.Fatal(err)
	}
	report("separate, one sequence with its 3 pictures", 1, start)
}
