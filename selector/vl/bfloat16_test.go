package vl

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/vl/processor"
)

// TestBFloat16AgainstFloat64: log-probabilities, losses of completions and gradients in bfloat16 on the device under test, of texts and
// of prompts with pictures and videos. A norm in bfloat16 or a softmax over the vocabulary in it is seen.
func TestBFloat16AgainstFloat64(t *testing.T) {
	if golden.Device() != "cpu" && !torchx.CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	path := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	adapter := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "adapters", "mid", "adapter_config.json"))
	for _, tc := range []struct {
		name    string
		prompts []string
		all     bool // the weights are trained, else the adapters
		onCPU   [3]float64
	}{
		{name: "texts", prompts: slices.Repeat([]string{"random"}, 8), onCPU: [3]float64{1.45, 1.20, 1.41}},
		{name: "pictures", prompts: []string{"one_image", "two_images", "big_image", "video", "image_and_video"},
			onCPU: [3]float64{1.36, 1.72, 1.44}},
		{name: "all weights", prompts: []string{"random", "one_image", "two_images", "big_image", "video", "image_and_video"}, all: true,
			onCPU: [3]float64{1.42, 1.48, 1.70}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			ids := func(n int) (out []int64) {
				for range n {
					out = append(out, 3+r.Int64N(590))
				}
				return out
			}
			var asks asked
			var queries []int
			for i, name := range tc.prompts {
				ask := &processor.Prompt{IDs: ids(20 + r.IntN(20))}
				if name != "random" {
					ask = prompt(t, name)
				}
				asks, queries = append(asks, ask), append(queries, i)
			}
			b, advantages := selector.NewBatch(asks, queries, 128/len(asks), 8), []float32(nil)
			for i := range queries {
				for j := range b.G {
					b.Set(i, j, ids(1+r.IntN(b.T)), 0)
					advantage := float32(r.NormFloat64())
					for range b.T {
						advantages = append(advantages, advantage)
					}
				}
			}
			run := func(device, dtype string, round bool) [3][]float64 {
				opt := DefaultOptions()
				opt.Path, opt.DType = &path, dtype
				opt.TuneMMLLM, opt.TuneMMVision, opt.TuneMMMLP = tc.all, tc.all, tc.all
				if opt.LoRA.Enabled = !tc.all; !tc.all {
					opt.Adapter = &adapter
				}
				m, err := Open(opt, device, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Free()
				defer torchx.Scope()()
				if round {
					for _, w := range m.Frozen().Tensors {
						torchx.Copy(w, w.To(torchx.BFloat16))
					}
					torchx.Copy(m.Params().Flat(), m.Params().Flat().To(torchx.BFloat16))
				}
				m.Params().ZeroGrad()
				out := NewPolicy(m).Forward(b, selector.ForwardOptions{}).LogP
				losses := torchx.Sum(torchx.Mul(out, torchx.ToLike(torchx.From(advantages, b.B(), b.G, b.T), out)), 2)
				torchx.Backward(torchx.Sum(losses))
				return [3][]float64{out.Floats(), losses.Floats(), m.Params().Grad().Floats()}
			}
			exact, rounded := run("cpu", "float64", false), run("cpu", "float64", true)
			low := run(golden.Device(), "bfloat16", false)
			for i, what := range []string{"log-probabilities", "losses of completions", "gradient"} {
				golden.Rounds(t, what, low[i], rounded[i], exact[i], tc.onCPU[i])
			}
		})
	}
}
