package vl

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/vl/processor"
)

// TestCUDA: on a CUDA device the logits, greedy ids and adapter gradients are the CPU's.
func TestCUDA(t *testing.T) {
	if !torchx.CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	path := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	adapter := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "adapters", "mid", "adapter_config.json"))
	ask := prompt(t, "image_and_video")
	run := func(device string) (logits, grad []float64, ids []int64) {
		opt := DefaultOptions()
		opt.Path, opt.Adapter, opt.DType = &path, &adapter, "float32"
		m, err := Open(opt, device, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		logits = promptLogits(t, m, ask)
		out, err := m.Generate([]*processor.Prompt{ask, prompt(t, "text")}, 2, greedy())
		if err != nil {
			t.Fatal(err)
		}
		defer torchx.Scope()()
		m.Params().ZeroGrad()
		torchx.Backward(torchx.Sum(NewPolicy(m).Forward(batchOf(ask, [][]int64{{70, 71, 602}, {72, 602}}), selector.ForwardOptions{}).LogP))
		return logits, m.Params().Grad().Floats(), out[0][1].IDs
	}
	logits, grad, ids := run("cpu")
	onDevice, gradThere, idsThere := run("cuda:0")
	golden.Close(t, onDevice, logits, 1e-3)
	golden.Close(t, gradThere, grad, 1e-3*math.Max(1, slices.Max(grad)))
	if !slices.Equal(idsThere, ids) {
		t.Errorf("greedy ids %v, want %v", idsThere, ids)
	}
}
