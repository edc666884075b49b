package seq2seq

import (
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// TestMemoryOfGRPOIsFlat trains by GRPO for 1,000 steps (100 with -short): five completions drawn of a source, scored by the
// policy as it is and by a frozen reference, the loss and its gradient, AdamW. Neither tensors nor resident memory may
// grow.
func TestMemoryOfGRPOIsFlat(t *testing.T) {
	steps := 1000
	if testing.Short() {
		steps = 100
	}
	const warm = 50
	for _, model := range []string{"t5", "bart"} {
		t.Run(model, func(t *testing.T) {
			step := grpoStep(t, scratch(t, model, nil))
			for i := range warm {
				step(i)
			}
			live, before := torchx.Live(), residentMB(t)
			for i := range steps {
				step(warm + i)
			}
			if n := torchx.Live() - live; n != 0 {
				t.Errorf("%d tensors left after %d steps", n, steps)
			}
			// The allowance is the allocator's own wandering, as completions differ in length.
			if grown := residentMB(t) - before; grown > 8 {
				t.Errorf("%.0f MB more after %d steps", grown, steps)
			}
		})
	}
}

// grpoStep returns a whole step of GRPO on made-up rewards: the share of even tokens.
func grpoStep(t *testing.T, m *Model) func(i int) {
	t.Helper()
	policy, reference := NewPolicy(m), NewPolicy(m.Clone().(*Model))
	t.Cleanup(reference.Free)
	adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0.01)
	t.Cleanup(adam.Free)
	src := texts()
	logps := func(p *Policy, b *selector.Batch) []float64 {
		defer torchx.NoGrad()()
		return p.Forward(b, selector.ForwardOptions{}).LogP.Floats()
	}
	return func(i int) {
		defer torchx.Scope()()
		b := policy.Sample(src, []int{i % len(src), (i + 1) % len(src)}, groupSize, 8, 1, uint64(i))
		rewards := make([]float64, len(b.Valid))
		for k := range rewards {
			ids := b.Scored(k/b.G, k%b.G)
			for _, id := range ids {
				rewards[k] += float64(1-id%2) / float64(len(ids))
			}
			rewards[k] -= 0.5
		}
		old, ref := logps(policy, b), logps(reference, b)
		m.Params().ZeroGrad()
		torchx.Backward(lossOf(b, policy.Forward(b, selector.ForwardOptions{Train: true}).LogP, old, ref, rewards).loss)
		adam.Step(1e-4, 1)
	}
}
