package seq2seq

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/tokenstest"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// questions has 32 random sources of 6 to 17 tokens with 4 completions of up to 8 tokens each, and advantages [32, 4, 8].
func questions() (b *selector.Batch, advantages []float32) {
	r := rand.New(rand.NewPCG(1, 2))
	ids := func(n int) (out []int64) {
		for range n {
			out = append(out, 3+r.Int64N(300))
		}
		return out
	}
	var sources asked
	var queries []int
	for i := range 32 {
		sources, queries = append(sources, append(ids(5+r.IntN(12)), 1)), append(queries, i)
	}
	b = selector.NewBatch(sources, queries, 4, 8)
	return b, tokenstest.Complete(b, r, ids)
}

// TestBFloat16AgainstFloat64: log-probabilities, losses of completions and gradients in bfloat16 on the device under test.
func TestBFloat16AgainstFloat64(t *testing.T) {
	if golden.Device() != "cpu" && !torchx.CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	for _, tc := range []struct {
		model string
		all   bool // the weights are trained, else the adapters
	}{
		{model: "tiny_t5"},
		{model: "tiny_t5", all: true},
		{model: "tiny_t5_v11"},
		{model: "tiny_t5_v11", all: true},
		{model: "tiny_bart"},
		{model: "tiny_bart", all: true},
	} {
		t.Run(name("%s all=%v", tc.model, tc.all), func(t *testing.T) {
			path := filepath.Dir(golden.Shared(t, "seq2seq", tc.model, "config.json"))
			adapter := filepath.Dir(golden.Shared(t, "seq2seq", "adapters", tc.model, "adapter_config.json"))
			b, advantages := questions()
			tokenstest.AgainstFloat64(t, func(device, dtype string) (tokenstest.Model, selector.Policy, error) {
				opt := DefaultOptions()
				opt.Path, opt.DType, opt.TuneAll = &path, dtype, tc.all
				if opt.LoRA.Enabled = !tc.all; !tc.all {
					opt.Adapter = &adapter
				}
				m, err := Open(opt, device, 1, nil)
				if err != nil {
					return nil, nil, err
				}
				return m, NewPolicy(m), nil
			}, b, advantages)
		})
	}
}
