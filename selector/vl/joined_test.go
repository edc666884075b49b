package vl

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl/processor"
)

// TestJoined: layers that read the same rows compute as one product what they compute one by one: logits, gradients of adapters with
// and without dropout, generation; the weights are still there under their names.
func TestJoined(t *testing.T) {
	adapter := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "adapters", "mid", "adapter_config.json"))
	ask := prompt(t, "image_and_video")
	defer torchx.Scope()()
	for name, change := range map[string]func(*Options){
		"no adapters": nil,
		"adapters":    func(o *Options) { o.Adapter = &adapter },
		"some adapters": func(o *Options) {
			o.LoRA = lora.Options{Enabled: true, Rank: 3, Alpha: 5, Dropout: 0.3,
				TargetModules: []string{"q_proj", "v_proj", "up_proj", "down_proj"}}
		},
		"trained whole": func(o *Options) { o.TuneMMLLM = true },
	} {
		t.Run(name, func(t *testing.T) {
			apart, joined := openTiny(t, "tiny_tied", change), openTiny(t, "tiny_tied", change)
			if name == "some adapters" { // fresh ones have B = 0
				for _, m := range []*Model{apart, joined} {
					g := torchx.NewGenerator(7, "cpu")
					torchx.Copy(m.Params().Flat(), g.Normal(m.Params().Flat(), 0, 0.1, m.Params().Flat().Shape()...))
					g.Free()
				}
			}
			joined.Joined = true
			joined.wire()
			again := joined.Clone().(*Model)
			t.Cleanup(again.Free)
			if one := joined.text.layers[0].qkv != nil; one != (name != "trained whole") {
				t.Fatalf("one product: %v", one)
			}
			close := func(what string, got, want []float64, tolerance float64) {
				t.Helper()
				t.Log(what)
				golden.Close(t, got, want, tolerance*math.Max(1, slices.Max(append(want, 0))))
			}
			for _, m := range []*Model{joined, again} {
				close("logits", promptLogits(t, m, ask), promptLogits(t, apart, ask), 2e-5)
				for _, train := range []bool{false, true} {
					wantLogp, want := gradientOf(apart, ask, train)
					logp, got := gradientOf(m, ask, train)
					close(fmt.Sprintf("log-probabilities, train=%v", train), logp, wantLogp, 2e-5)
					close(fmt.Sprintf("gradient, train=%v", train), got, want, 1e-4)
				}
				for _, c := range residentCases()[:3] {
					sameCompletions(t, c.generate(t, m, true), c.generate(t, apart, false), 1e-4, 0)
				}
				for _, weight := range []string{"model.layers.1.self_attn.v_proj.weight", "visual.blocks.1.mlp.down_proj.weight"} {
					close(weight, m.Weight(weight).Floats(), apart.Weight(weight).Floats(), 0)
				}
			}
		})
	}
}

// gradientOf returns the log-probabilities of two completions and the gradient of their sum.
func gradientOf(m *Model, ask *processor.Prompt, train bool) (logp, gradient []float64) {
	defer torchx.Scope()()
	m.Params().ZeroGrad()
	out := NewPolicy(m).Forward(batchOf(ask, [][]int64{{70, 71, 602}, {72, 602}}), selector.ForwardOptions{Train: train, DropoutSeed: 3}).LogP
	logp = out.Floats()
	if m.Params().Flat().Numel() > 0 {
		torchx.Backward(torchx.Sum(out))
		gradient = m.Params().Grad().Floats()
	}
	return logp, gradient
}
