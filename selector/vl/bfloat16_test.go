package vl

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/tokenstest"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/vl/processor"
)

// TestBFloat16AgainstFloat64: log-probabilities, losses of completions and gradients in bfloat16 on the device under test, of texts and
// of prompts with pictures and videos.
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
	}{
		{name: "texts", prompts: slices.Repeat([]string{"random"}, 8)},
		{name: "pictures", prompts: []string{"one_image", "two_images", "big_image", "video", "image_and_video"}},
		{name: "all weights", prompts: []string{"random", "one_image", "two_images", "big_image", "video", "image_and_video"}, all: true},
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
			b := selector.NewBatch(asks, queries, 128/len(asks), 8)
			tokenstest.AgainstFloat64(t, func(device, dtype string) (tokenstest.Model, selector.Policy, error) {
				opt := DefaultOptions()
				opt.Path, opt.DType = &path, dtype
				opt.TuneMMLLM, opt.TuneMMVision, opt.TuneMMMLP = tc.all, tc.all, tc.all
				if opt.LoRA.Enabled = !tc.all; !tc.all {
					opt.Adapter = &adapter
				}
				m, err := Open(opt, device, 1, nil)
				if err != nil {
					return nil, nil, err
				}
				return m, NewPolicy(m), nil
			}, b, tokenstest.Complete(b, r, ids))
		})
	}
}
