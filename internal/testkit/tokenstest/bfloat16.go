// Package tokenstest holds checks that every token policy's tests make.
package tokenstest

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/weights"
)

// Model is a model whose number types are compared.
type Model interface {
	Params() *torchx.Params
	Frozen() *weights.Frozen
	Free()
}

// Complete gives every query of b its G completions of up to T tokens, drawn by ids, and returns an advantage for each of their tokens
// [B, G, T].
func Complete(b *selector.Batch, r *rand.Rand, ids func(n int) []int64) (advantages []float32) {
	for i := range b.B() {
		for j := range b.G {
			b.Set(i, j, ids(1+r.IntN(b.T)), 0)
			advantage := float32(r.NormFloat64())
			for range b.T {
				advantages = append(advantages, advantage)
			}
		}
	}
	return advantages
}

// AgainstFloat64 compares what a model computes in bfloat16 on the device under test with float64: log-probabilities, losses of
// completions and gradients (golden.Rounds). open returns the model of a type on a device and its policy. Its norms and its attention
// are those of torchx, which TestWideOperations holds to float64: where they are planted to round at each step, the model's numbers
// change. Its log-probabilities are no bfloat16 numbers, as a softmax over the vocabulary in that type would make them.
func AgainstFloat64(t *testing.T, open func(device, dtype string) (Model, selector.Policy, error), b *selector.Batch,
	advantages []float32) {
	t.Helper()
	run := func(device, dtype string, round bool) [3][]float64 {
		m, p, err := open(device, dtype)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		defer torchx.Scope()()
		if round { // all weights, in float64
			for _, w := range slices.AppendSeq([]torchx.Tensor{m.Params().Flat()}, maps.Values(m.Frozen().Tensors)) {
				torchx.Copy(w, w.To(torchx.BFloat16))
			}
		}
		m.Params().ZeroGrad()
		out := p.Forward(b, selector.ForwardOptions{}).LogP
		losses := torchx.Sum(torchx.Mul(out, torchx.ToLike(torchx.From(advantages, b.B(), b.G, b.T), out)), 2)
		torchx.Backward(torchx.Sum(losses))
		return [3][]float64{out.Floats(), losses.Floats(), m.Params().Grad().Floats()}
	}
	exact, rounded := run("cpu", "float64", false), run("cpu", "float64", true)
	cpu := run("cpu", "bfloat16", false)
	low := cpu
	if golden.Device() != "cpu" {
		low = run(golden.Device(), "bfloat16", false)
	}
	for i, what := range []string{"log-probabilities", "losses of completions", "gradient"} {
		golden.Rounds(t, what, low[i], rounded[i], exact[i])
	}
	short := 0
	for _, x := range low[0] {
		if math.Float32bits(float32(x))&0xffff == 0 {
			short++
		}
	}
	if short > len(low[0])/2 { // padding is 0
		t.Errorf("%d of %d log-probabilities are bfloat16 numbers: the softmax over the vocabulary rounds to them", short, len(low[0]))
	}
	for plant, what := range map[torchx.Rounding]string{torchx.RoundNorms: "norms", torchx.RoundAttention: "attention"} {
		torchx.PlantRounding(plant)
		planted := run("cpu", "bfloat16", false)
		torchx.PlantRounding(0)
		if slices.Equal(planted[0], cpu[0]) {
			t.Errorf("%s planted to round at each step change nothing: the model computes them elsewhere", what)
		}
	}
}
