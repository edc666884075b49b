package policytest

import (
	"slices"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// exactKL checks that the KL and the entropy of a token policy are the sums over the vocabulary that the logits of its
// model say, and that the KL to itself is 0. scale is how far the reference's weights are moved.
func exactKL[P any](t *testing.T, policy *tokens.Policy[P], b *selector.Batch, scale float64) {
	t.Helper()
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	other := policy.Clone().(*tokens.Policy[P])
	defer other.Free()
	values := other.Params().Values()
	r := rng.New(1, "noise")
	for i := range values {
		values[i] += float32(scale * r.NormFloat64())
	}
	other.Params().SetValues(values)
	groups, index := tokens.Groups[P]("test", b)
	all := func(m tokens.Model[P]) torchx.Tensor {
		hidden, _, err := m.Hidden(groups, &lora.Pass{})
		if err != nil {
			t.Fatal(err)
		}
		return torchx.LogSoftmax(m.Tensors().Logits(hidden), -1)
	}
	steps := func(x torchx.Tensor) []float64 { return tokens.Steps(b, x, index, policy.Params().Flat()).Floats() }
	p, q := all(policy.Model()), all(other.Model())
	golden.Close(t, policy.KL(b, policy).Floats(), make([]float64, len(b.Mask)), 1e-6)
	got := policy.KL(b, other).Floats()
	golden.Close(t, got, steps(torchx.Sum(torchx.Mul(torchx.Exp(p), torchx.Sub(p, q)), 1)), 1e-5)
	if most := slices.Max(got); most < 1e-4 {
		t.Errorf("largest KL %g: the policies are alike", most)
	}
	entropy := policy.Forward(b, selector.ForwardOptions{}).Entropy.Floats()
	golden.Close(t, entropy, steps(torchx.Neg(torchx.Sum(torchx.Mul(torchx.Exp(p), p), 1))), 1e-4)
}
