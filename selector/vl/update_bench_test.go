package vl

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// BenchmarkUpdate takes an update of Qwen2.5-1.5B's shape apart on CUDA: 8 prompts of 256 tokens × 8 completions of 256.
func BenchmarkUpdate(b *testing.B) {
	shape, device, dtype := decodeShape{64, 2, 4, 2, 96, 640, 2, 4, 20, 24, "exact"}, "cpu", "float32"
	if torchx.CUDAAvailable() {
		shape, device, dtype = decodeShape{1536, 28, 12, 2, 8960, 151936, 8, 8, 256, 256, "exact"}, "cuda:0", "bfloat16"
	}
	opt := DefaultOptions()
	opt.DType = dtype
	m, err := NewFrozen(opt, shape.config(), device, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Free()
	policy, src := NewPolicy(m), asked(shape.ask())
	queries := make([]int, shape.prompts)
	for i := range queries {
		queries[i] = i
	}
	batch := selector.NewBatch(src, queries, shape.samples, shape.newTokens)
	for i := range queries {
		for j := range shape.samples {
			ids := make([]int64, shape.newTokens)
			for k := range ids {
				ids[k] = int64(2 + (i*7919+j*104729+k*31)%(shape.vocab-2))
			}
			batch.Set(i, j, ids, 0)
		}
	}
	groups, _ := tokens.Groups[*processor.Prompt]("bench", batch)
	for range 2 {
		func() {
			defer torchx.Scope()()
			m.Params().ZeroGrad()
			var logp, hidden torchx.Tensor
			var targets []int64
			frozen := func(f func()) func() {
				return func() {
					defer torchx.NoGrad()()
					f()
				}
			}
			for _, part := range []struct {
				name string
				f    func()
			}{
				{"rows, no gradient", frozen(func() { hidden, targets, _ = m.Hidden(groups, &lora.Pass{}) })},
				{"head, no gradient", frozen(func() { m.TokenLogp(hidden, targets, 1) })},
				{"rows and head, no gradient", frozen(func() { policy.Forward(batch, selector.ForwardOptions{}) })},
				{"rows and head", func() { logp = policy.Forward(batch, selector.ForwardOptions{}).LogP }},
				{"backward", func() { torchx.Backward(torchx.Sum(logp)) }},
			} {
				start := milliseconds(1, part.f)
				say(b, "update: %-28s %8.2f ms", part.name, start)
			}
		}()
	}
}

// BenchmarkVision looks at pictures of 504 × 504 pixels with Qwen2.5-VL-3B's tower on CUDA, one by one and together.
func BenchmarkVision(b *testing.B) {
	device, dtype, depth, hidden, side, pictures := "cpu", "float32", 2, 64, 12, 4
	if torchx.CUDAAvailable() {
		device, dtype, depth, hidden, side, pictures = "cuda:0", "bfloat16", 32, 1280, 36, 75
	}
	config, err := json.Marshal(map[string]any{"architectures": []string{"Qwen2_5_VLForConditionalGeneration"}, "model_type": "qwen2_5_vl",
		"torch_dtype": dtype, "vocab_size": 640, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
		"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true,
		"max_position_embeddings": 32768, "rope_scaling": map[string]any{"type": "mrope", "mrope_section": []int{2, 3, 3}},
		"image_token_id": 639, "video_token_id": 638, "vision_start_token_id": 637, "vision_end_token_id": 636,
		"vision_config": map[string]any{"depth": depth, "hidden_size": hidden, "intermediate_size": hidden*2 + hidden*43/64, "num_heads": 16,
			"out_hidden_size": 64, "window_size": 112, "fullatt_block_indexes": []int{depth - 1, depth/2 - 1}, "tokens_per_second": 2}})
	if err != nil {
		b.Fatal(err)
	}
	opt := DefaultOptions()
	opt.DType = dtype
	m, err := NewFrozen(opt, config, device, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Free()
	data := make([]float32, side*side*m.cfg.Vision.PatchSize())
	for i := range data {
		data[i] = float32(i%255)/128 - 1
	}
	for _, most := range []int{0, visionRows / 4, visionRows, visionRows, 2 * visionRows} {
		m.features.Clear()
		var all []pixels.Patches
		for i := range pictures {
			all = append(all, pixels.Patches{Data: data, Rows: side * side, Grid: [3]int{1, side, side}, Key: fmt.Sprint(i)})
		}
		n := pictures
		if most == 0 {
			n = pictures / 5
		}
		func() {
			defer torchx.Scope()()
			torchx.Synchronize()
			start := time.Now()
			m.remembered(all[:n], &lora.Pass{}, most)
			launched := time.Since(start)
			torchx.Synchronize()
			say(b, "vision: passes of %6d rows: %d pictures, %.2f ms each, launched in %.2f", most, n, 1e3*time.Since(start).Seconds()/float64(n),
				1e3*launched.Seconds()/float64(n))
		}()
	}
	if device == "cpu" {
		return
	}
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	like := m.Params().Flat()
	of := func(shape ...int) torchx.Tensor { return torchx.FullLike(like, 0.01, torchx.BFloat16, shape...) }
	const n, d = 32400, 1280
	x, none := of(n, d), torchx.Tensor{}
	var windows, whole []torchx.Span
	for at := 0; at < n; at += 64 {
		windows = append(windows, torchx.Span{Q: at, QLen: min(64, n-at), Own: at, OwnLen: min(64, n-at)})
	}
	for at := 0; at < n; at += 1296 {
		whole = append(whole, torchx.Span{Q: at, QLen: 1296, Own: at, OwnLen: 1296})
	}
	heads := of(n, 16, 80)
	half := torchx.FullLike(like, 0.5, torchx.Float32, n, 40)
	for _, part := range []struct {
		name string
		f    func()
	}{
		{"1280 → 3840", func() { torchx.Linear(x, of(3840, d), none) }},
		{"1280 → 1280", func() { torchx.Linear(x, of(d, d), none) }},
		{"1280 → 3420", func() { torchx.Linear(x, of(3420, d), none) }},
		{"1280 → 3424", func() { torchx.Linear(x, of(3424, d), none) }},
		{"1280 → 6848", func() { torchx.Linear(x, of(6848, d), none) }},
		{"3420 → 1280", func() { torchx.Linear(of(n, 3420), of(d, 3420), none) }},
		{"3424 → 1280", func() { torchx.Linear(of(n, 3424), of(d, 3424), none) }},
		{"fill of 3424 columns", func() { of(n, 3424) }},
		{"windows", func() { torchx.Attend(heads, heads, heads, windows, 0.1) }},
		{"whole pictures", func() { torchx.Attend(heads, heads, heads, whole, 0.1) }},
		{"rope", func() { torchx.Rope(heads, half, half) }},
		{"add", func() { torchx.Add(x, x) }},
		{"norm", func() { torchx.RMSNorm(x, of(d), 1e-6) }},
		{"swiglu", func() { torchx.SwiGLU(of(n, 3424), of(n, 3424)) }},
	} {
		once := func() { defer torchx.Scope()(); part.f() }
		once()
		say(b, "vision: %-24s %7.3f ms", part.name, milliseconds(10, once))
	}
}
