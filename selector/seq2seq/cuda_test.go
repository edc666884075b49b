package seq2seq

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// TestCUDA: on a CUDA device the logits, greedy ids and adapter gradients are the CPU's.
func TestCUDA(t *testing.T) {
	if !torchx.CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	each(t, func(t *testing.T, model string) {
		path := filepath.Dir(golden.Shared(t, "seq2seq", model, "config.json"))
		adapter := filepath.Dir(golden.Shared(t, "seq2seq", "adapters", model, "adapter_config.json"))
		gs, _ := forwardCase(t, model)
		run := func(device string) (logits, grad []float64, ids []int64) {
			opt := DefaultOptions()
			opt.Path, opt.Adapter, opt.DType = &path, &adapter, "float32"
			m, err := Open(opt, device, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free()
			logits = logitsOf(t, m, gs[1])
			out, err := m.Generate([][]int64{gs[0].Prompt, gs[1].Prompt}, 2, greedy(12))
			if err != nil {
				t.Fatal(err)
			}
			defer torchx.Scope()()
			m.Params().ZeroGrad()
			torchx.Backward(torchx.Sum(NewPolicy(m).Forward(groupBatch(), selector.ForwardOptions{}).LogP))
			return logits, m.Params().Grad().Floats(), out[1][1].IDs
		}
		logits, grad, ids := run("cpu")
		onDevice, gradThere, idsThere := run("cuda:0")
		golden.Close(t, onDevice, logits, 1e-3)
		golden.Close(t, gradThere, grad, 1e-3*math.Max(1, slices.Max(grad)))
		if !slices.Equal(idsThere, ids) {
			t.Errorf("greedy ids %v, want %v", idsThere, ids)
		}
	})
}
