package vl

import (
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/vl/processor"
)

// benchmarkModel has the default scratch sizes.
func benchmarkModel(b *testing.B) *Model {
	b.Helper()
	m, err := New(DefaultOptions(), vocabulary(), "cpu", 5)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Free)
	return m
}

// BenchmarkRollout draws 8 completions of 16 tokens for 4 prompts with pictures.
func BenchmarkRollout(b *testing.B) {
	m := benchmarkModel(b)
	prompts := []*processor.Prompt{pictured(1), pictured(2), pictured(3), pictured(4)}
	opt := GenerateOptions{SamplingOptions: DefaultSampling(), IgnoreEOS: true}
	opt.MaxNewTokens = 16
	for b.Loop() {
		if _, err := m.Generate(prompts, 8, opt); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(4*8*16*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkStep is forward, backward and update on what BenchmarkRollout drew.
func BenchmarkStep(b *testing.B) {
	m := benchmarkModel(b)
	policy := NewPolicy(m)
	src := asked{pictured(1), pictured(2), pictured(3), pictured(4)}
	batch := policy.Sample(src, []int{0, 1, 2, 3}, 8, 16, 1, 1)
	adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0)
	b.Cleanup(adam.Free)
	for b.Loop() {
		end := torchx.Scope()
		m.Params().ZeroGrad()
		torchx.Backward(torchx.Neg(torchx.Sum(policy.Forward(batch, selector.ForwardOptions{}).LogP)))
		adam.Step(1e-4, 1)
		end()
	}
	b.ReportMetric(float64(batch.NumValid()*b.N)/b.Elapsed().Seconds(), "completions/s")
}

// BenchmarkSharedPrompt is forward and backward of 8 completions of 32 tokens behind a prompt of 400, as one group and as
// 8 sequences that compute the prompt each.
func BenchmarkSharedPrompt(b *testing.B) {
	m := benchmarkModel(b)
	policy := NewPolicy(m)
	ask := &processor.Prompt{IDs: make([]int64, 400)}
	group := policy.Sample(asked{ask}, []int{0}, 8, 32, 1, 1)
	single := selector.NewBatch(group.Source, make([]int, 8), 1, group.T)
	for j := range 8 {
		single.Set(j, 0, group.Scored(0, j), 0)
	}
	for i, batch := range []*selector.Batch{group, single} {
		b.Run([]string{"group", "sequences"}[i], func(b *testing.B) {
			for b.Loop() {
				end := torchx.Scope()
				m.Params().ZeroGrad()
				torchx.Backward(torchx.Neg(torchx.Sum(policy.Forward(batch, selector.ForwardOptions{}).LogP)))
				end()
			}
		})
	}
}
