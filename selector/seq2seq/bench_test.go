package seq2seq

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// The cases of the specification's table of speeds (§13), for its mid models and for the fixtures':
//
//	go test -run '^$' -bench 'Speed/mid_t5/' ./selector/seq2seq                    # ours alone
//	go test -run '^$' -bench Peer -benchtime 5x ./selector/seq2seq                 # in turns with scripts/peer_seq2seq.py
//
// Times are the processor's, on one thread: other programs count less in them.

// workload is a model and its sequences.
type workload struct {
	name                      string
	source, target, generated int
	open                      func(b *testing.B, adapters bool) *Model
}

func workloads() []workload {
	var all []workload
	for _, name := range models() {
		all = append(all, workload{name, 40, 20, 32, func(b *testing.B, adapters bool) *Model {
			return openTiny(b, name, func(o *Options) { o.TuneAll, o.LoRA.Enabled = !adapters, adapters })
		}})
	}
	for _, model := range architecturesFromScratch() {
		all = append(all, workload{map[string]string{"t5": "mid_t5", "t5_v1_1": "mid_t5_v11", "bart": "mid_bart"}[model], 256, 64, 64,
			func(b *testing.B, adapters bool) *Model {
				return midModel(b, model, adapters)
			}})
	}
	return all
}

// midModel has the sizes of the specification's speed figures: d_model 512, 8 heads of 64, 6+6 layers, 8192 tokens.
func midModel(b *testing.B, model string, adapters bool) *Model {
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
	if !adapters {
		return m
	}
	dir := b.TempDir()
	if err := m.SaveMerged(dir, "float32"); err != nil {
		b.Fatal(err)
	}
	o.Path, o.LoRA.Enabled = &dir, true
	adapted, err := Open(o, "cpu", 5, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(adapted.Free)
	return adapted
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

func benchCases() []string {
	return []string{"forward", "backward", "greedy4", "greedy1", "grpo", "lora"}
}

// round returns one repetition of a case: teacher forcing without and with the gradient of the mean cross-entropy at
// batch 4, greedy generation at batch 4 and 1, and GRPO's loss and gradient of five completions of one source, where all
// weights are trained and where adapters are.
func (w workload) round(b *testing.B, which string) func() {
	m := w.open(b, which == "lora")
	policy := NewPolicy(m)
	four := pairs(4, 1, w.source, w.target, m.cfg.Vocab)
	switch which {
	case "forward":
		return func() {
			defer torchx.Scope()()
			defer torchx.NoGrad()()
			policy.Forward(four, selector.ForwardOptions{})
		}
	case "backward":
		return func() {
			defer torchx.Scope()()
			m.Params().ZeroGrad()
			torchx.Backward(torchx.Neg(torchx.Mean(policy.Forward(four, selector.ForwardOptions{}).LogP)))
		}
	case "grpo", "lora":
		return groupRound(policy, pairs(1, 5, w.source, w.target, m.cfg.Vocab))
	}
	n := map[string]int{"greedy4": 4, "greedy1": 1}[which]
	return func() {
		if _, err := m.Generate(four.Source.(asked)[:n], 1, greedy(w.generated)); err != nil {
			b.Fatal(err)
		}
	}
}

// groupRound is a pass of GRPO over a group on given advantages, old and reference log-probabilities, without the
// optimiser's step: clipped ratios a token at 0.1, and 0.04 times the k3 estimate of KL.
func groupRound(policy *Policy, group *selector.Batch) func() {
	var old []float32
	func() {
		defer torchx.Scope()()
		defer torchx.NoGrad()()
		for _, x := range policy.Forward(group, selector.ForwardOptions{}).LogP.Floats() {
			old = append(old, float32(x))
		}
	}()
	return func() {
		defer torchx.Scope()()
		old, advantages := torchx.From(old, group.B(), group.G, group.T), torchx.From([]float32{1.2, -1.2, 0.4, -0.4, 0}, 1, 5, 1)
		logp := policy.Forward(group, selector.ForwardOptions{Train: true}).LogP
		ratio := torchx.Exp(torchx.Sub(logp, old))
		surrogate := torchx.Minimum(torchx.Mul(ratio, advantages), torchx.Mul(torchx.Clamp(ratio, 0.9, 1.1), advantages))
		delta := torchx.Sub(old, logp)
		kl := torchx.AddScalar(torchx.Sub(torchx.Exp(delta), delta), -1)
		policy.Params().ZeroGrad()
		torchx.Backward(torchx.Mean(torchx.Sub(torchx.Scale(kl, 0.04), surrogate)))
	}
}

// timed runs f and returns how many seconds it computed.
func timed(b *testing.B, f func()) float64 {
	before := golden.ProcessorTime(b)
	f()
	return (golden.ProcessorTime(b) - before).Seconds()
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// eachCase runs a benchmark for every case of every workload, after a round that warms up.
func eachCase(b *testing.B, run func(b *testing.B, w workload, which string, round func())) {
	for _, w := range workloads() {
		for _, which := range benchCases() {
			b.Run(w.name+"/"+which, func(b *testing.B) {
				round := w.round(b, which)
				round()
				run(b, w, which, round)
			})
		}
	}
}

// tokensPerSecond is how fast whole greedy calls are; no number for the other cases.
func (w workload) tokensPerSecond(which string, seconds float64) (float64, bool) {
	switch which {
	case "greedy4":
		return float64(4*w.generated) / seconds, true
	case "greedy1":
		return float64(w.generated) / seconds, true
	}
	return 0, false
}

// BenchmarkSpeed measures ours alone.
func BenchmarkSpeed(b *testing.B) {
	eachCase(b, func(b *testing.B, w workload, which string, round func()) {
		var seconds []float64
		for b.Loop() {
			seconds = append(seconds, timed(b, round))
		}
		b.ReportMetric(1e3*median(seconds), "cpu-ms")
		b.ReportMetric(1e3*slices.Min(seconds), "least-ms")
		if rate, ok := w.tokensPerSecond(which, median(seconds)); ok {
			b.ReportMetric(rate, "tokens/cpu-s")
		}
	})
}

// BenchmarkPeer measures ours in turns with the peer's. ratio is the median of the peer's time over ours in a pair,
// least-ratio and most-ratio that of the worst and the best pair.
func BenchmarkPeer(b *testing.B) {
	p := startPeer(b)
	eachCase(b, func(b *testing.B, w workload, which string, round func()) {
		p.seconds(b, w.name, which)
		var ours, theirs, ratios []float64
		for b.Loop() {
			t, o := p.seconds(b, w.name, which), timed(b, round)
			ours, theirs, ratios = append(ours, o), append(theirs, t), append(ratios, t/o)
		}
		b.ReportMetric(1e3*median(ours), "ours-ms")
		b.ReportMetric(1e3*median(theirs), "peer-ms")
		b.ReportMetric(median(ratios), "ratio")
		b.ReportMetric(slices.Min(ratios), "least-ratio")
		b.ReportMetric(slices.Max(ratios), "most-ratio")
	})
}

// peer is the program scripts/peer_seq2seq.py, which does a repetition a line.
type peer struct {
	in  io.Writer
	out *json.Decoder
}

func startPeer(b *testing.B) *peer {
	b.Helper()
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "/usr/bin/python3" // Debian's torch is of the libtorch that ours is linked with
	}
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		b.Skipf("%s has no torch (PYTHON names another): %v", python, err)
	}
	cmd := exec.Command(python, filepath.Join("..", "..", "scripts", "peer_seq2seq.py"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return &peer{in, json.NewDecoder(bufio.NewReader(out))}
}

// seconds runs the peer once.
func (p *peer) seconds(b *testing.B, model, which string) float64 {
	b.Helper()
	var took struct{ Wall, CPU float64 }
	if _, err := fmt.Fprintln(p.in, model, which); err != nil {
		b.Fatal(err)
	}
	if err := p.out.Decode(&took); err != nil {
		b.Fatal(err)
	}
	return took.CPU
}
