package seq2seq

import (
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// midModel has the sizes of the specification's speed figures: d_model 512, 8 heads of 64, 6+6 layers, 8192 tokens.
func midModel(b *testing.B, model string) *Model {
	b.Helper()
	o := DefaultOptions()
	o.Scratch = ScratchOptions{Model: model, Width: 512, FF: 2048, Layers: 6, DecoderLayers: 6, Heads: 8, Positions: 1024}
	if model == "t5_v1_1" {
		o.Scratch.FF = 1024
	}
	v := vocabulary()
	v.Size, v.BOS = 8192, nil
	m, err := New(o, v, "cpu", 5)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Free)
	return m
}

// pairs are n sources of 256 tokens with `each` targets of 64.
func pairs(n, each int) *selector.Batch {
	texts := asked{}
	queries := make([]int, n)
	for i := range n {
		ids := make([]int64, 256)
		for k := range ids {
			ids[k] = int64(3 + (k*7+i*31)%8000)
		}
		texts, queries[i] = append(texts, ids), i
	}
	b := selector.NewBatch(texts, queries, each, 64)
	for i := range n {
		for j := range each {
			ids := make([]int64, 64)
			for k := range ids {
				ids[k] = int64(3 + (k*11+i*17+j*5)%8000)
			}
			b.Set(i, j, ids, 0)
		}
	}
	return b
}

// onProcessor reports the processor's time of each round, which other programs do not count in.
func onProcessor(b *testing.B, round func()) float64 {
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	rounds := 0
	for b.Loop() {
		round()
		rounds++
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	seconds := time.Duration(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()).Seconds() / float64(rounds)
	b.ReportMetric(seconds, "cpu-s/op")
	return seconds
}

// BenchmarkMid has the cases of the specification's table: teacher forcing without and with gradient at batch 4, a group of
// five on one source, and greedy generation of 64 tokens at batch 4 and 1.
func BenchmarkMid(b *testing.B) {
	for _, model := range architecturesFromScratch() {
		m := midModel(b, model)
		policy := NewPolicy(m)
		backward := func(batch *selector.Batch) {
			defer torchx.Scope()()
			m.params.ZeroGrad()
			torchx.Backward(torchx.Neg(torchx.Mean(policy.Forward(batch, selector.ForwardOptions{}).LogP)))
		}
		four, group := pairs(4, 1), pairs(1, 5)
		b.Run(model+"/forward", func(b *testing.B) {
			onProcessor(b, func() {
				defer torchx.Scope()()
				defer torchx.NoGrad()()
				policy.Forward(four, selector.ForwardOptions{})
			})
		})
		b.Run(model+"/backward", func(b *testing.B) { onProcessor(b, func() { backward(four) }) })
		b.Run(model+"/group", func(b *testing.B) { onProcessor(b, func() { backward(group) }) })
		for _, n := range []int{4, 1} {
			b.Run(model+map[int]string{4: "/greedy4", 1: "/greedy1"}[n], func(b *testing.B) {
				seconds := onProcessor(b, func() {
					if _, err := m.Generate(four.Source.(asked)[:n], 1, greedy(64)); err != nil {
						b.Fatal(err)
					}
				})
				b.ReportMetric(float64(n*64)/seconds, "tokens/cpu-s")
			})
		}
	}
}
