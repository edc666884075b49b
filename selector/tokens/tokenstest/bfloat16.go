// Package tokenstest holds checks that every token policy's tests make.
package tokenstest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"fulcrum/internal/golden"
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
// completions and gradients, each bounded by its value on a CPU (golden.Rounds). open returns the model of a type on a device and
// its policy.
func AgainstFloat64(t *testing.T, open func(device, dtype string) (Model, selector.Policy, error), b *selector.Batch, advantages []float32,
	onCPU [3]float64) {
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
	low := run(golden.Device(), "bfloat16", false)
	for i, what := range []string{"log-probabilities", "losses of completions", "gradient"} {
		golden.Rounds(t, what, low[i], rounded[i], exact[i], onCPU[i])
	}
}
