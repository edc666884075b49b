package seq2seq

import (
	"fmt"
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

// pairs are n sources with `each` targets of so many tokens.
func pairs(n, each, source, target, vocabulary int) *selector.Batch {
	texts := asked{}
	queries := make([]int, n)
	for i := range n {
		ids := make([]int64, source)
		for k := range ids {
			ids[k] = int64(3 + (k*7+i*31)%(vocabulary-3))
		}
		texts, queries[i] = append(texts, ids), i
	}
	b := selector.NewBatch(texts, queries, each, target)
	for i := range n {
		for j := range each {
			ids := make([]int64, target)
			for k := range ids {
				ids[k] = int64(3 + (k*11+i*17+j*5)%(vocabulary-3))
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

// BenchmarkMid has the cases of the specification's table for its mid models.
func BenchmarkMid(b *testing.B) {
	for _, model := range architecturesFromScratch() {
		table(b, model, midModel(b, model), 256, 64, 64)
	}
}

// BenchmarkTiny has them for the fixtures' models.
func BenchmarkTiny(b *testing.B) {
	for _, model := range models() {
		table(b, model, openTiny(b, model, func(o *Options) { o.TuneAll = true }), 40, 20, 32)
	}
}

// table runs teacher forcing without and with gradient at batch 4, a group of five on one source, and greedy generation
// at batch 4 and 1.
func table(b *testing.B, name string, m *Model, source, target, generated int) {
	policy := NewPolicy(m)
	backward := func(batch *selector.Batch) {
		defer torchx.Scope()()
		m.params.ZeroGrad()
		torchx.Backward(torchx.Neg(torchx.Mean(policy.Forward(batch, selector.ForwardOptions{}).LogP)))
	}
	four, group := pairs(4, 1, source, target, m.cfg.Vocab), pairs(1, 5, source, target, m.cfg.Vocab)
	b.Run(name+"/forward", func(b *testing.B) {
		onProcessor(b, func() {
			defer torchx.Scope()()
			defer torchx.NoGrad()()
			policy.Forward(four, selector.ForwardOptions{})
		})
	})
	b.Run(name+"/backward", func(b *testing.B) { onProcessor(b, func() { backward(four) }) })
	b.Run(name+"/group", func(b *testing.B) { onProcessor(b, func() { backward(group) }) })
	for _, n := range []int{4, 1} {
		b.Run(fmt.Sprintf("%s/greedy%d", name, n), func(b *testing.B) {
			seconds := onProcessor(b, func() {
				if _, err := m.Generate(four.Source.(asked)[:n], 1, greedy(generated)); err != nil {
					b.Fatal(err)
				}
			})
			b.ReportMetric(float64(n*generated)/seconds, "tokens/cpu-s")
		})
	}
}
