package vl

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// decodeShape is a text model and what it is asked for.
type decodeShape struct {
	hidden, layers, heads, kvHeads, intermediate, vocab int
	prompts, samples, promptTokens, newTokens           int

	kernel string // of attention
}

func (s decodeShape) config() []byte {
	return fmt.Appendf(nil, `{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "vocab_size": %d,
		"hidden_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d, "intermediate_size": %d,
		"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "initializer_range": 0.02, "tie_word_embeddings": true,
		"max_position_embeddings": 32768, "eos_token_id": 1, "bos_token_id": 0}`,
		s.vocab, s.hidden, s.layers, s.heads, s.kvHeads, s.intermediate)
}

func (s decodeShape) ask() (prompts []*processor.Prompt) {
	r := rand.New(rand.NewPCG(1, 2))
	for range s.prompts {
		p := &processor.Prompt{}
		for range s.promptTokens {
			p.IDs = append(p.IDs, int64(2+r.IntN(s.vocab-2)))
		}
		prompts = append(prompts, p)
	}
	return prompts
}

// BenchmarkDecode draws completions of Qwen2.5's shapes on CUDA, and takes a step apart; elsewhere of a tiny shape.
func BenchmarkDecode(b *testing.B) {
	type run struct {
		name  string
		shape decodeShape
		lora  bool
	}
	device, dtype := "cpu", "float32"
	tiny := decodeShape{64, 2, 4, 2, 96, 640, 4, 4, 20, 24, "exact"}
	runs := []run{{"tiny", tiny, false}, {"tiny_lora", tiny, true}}
	if torchx.CUDAAvailable() {
		device, dtype = "cuda:0", "bfloat16"
		small := decodeShape{1536, 28, 12, 2, 8960, 151936, 64, 8, 256, 128, "exact"}
		large := decodeShape{2048, 36, 16, 2, 11008, 151936, 256, 1, 582, 128, "exact"}
		own := small
		own.prompts, own.samples = 512, 1
		runs = []run{{"groups", small, false}, {"groups_lora", small, true}, {"groups_lora_apart", small, true},
			{"own_prompts_lora", own, true},
			{"3b_own_prompts_lora", large, true}}
		for _, r := range runs[1:] {
			if r.name != "groups_lora_apart" {
				r.name, r.shape.kernel = r.name+"_fast", "fast"
				runs = append(runs, r)
			}
		}
	}
	for _, r := range runs {
		b.Run(r.name, func(b *testing.B) {
			opt := DefaultOptions()
			opt.DType, opt.LoRA.Enabled = dtype, r.lora
			m, err := NewFrozen(opt, r.shape.config(), device, 1)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Free()
			if strings.HasSuffix(r.name, "_apart") {
				m.Joined = false
				m.wire()
			}
			decode(b, m, r.shape)
			if device != "cpu" && m.Joined {
				decodeParts(b, m, r.shape)
			}
		})
	}
}

// decode reports tokens a second of whole generations, and how far the log-probabilities that tokens were drawn with are from
// those of a forward pass.
func decode(b *testing.B, m *Model, s decodeShape) {
	o := GenerateOptions{SamplingOptions: DefaultSampling(), IgnoreEOS: true, OnDevice: true}
	o.MaxNewTokens, o.Kernel = s.newTokens, s.kernel
	prompts := s.ask()
	var out [][]Completion
	for i := range 2 {
		start := time.Now()
		var err error
		if out, err = m.Generate(prompts, s.samples, o); err != nil {
			b.Fatal(err)
		}
		seconds := time.Since(start).Seconds()
		n := s.prompts * s.samples
		say(b, "generation %d: %d sequences × %d tokens after prompts of %d: %.3f s, %.0f tokens/s, %.2f ms a token", i, n, s.newTokens,
			s.promptTokens, seconds, float64(n*s.newTokens)/seconds, 1e3*seconds/float64(s.newTokens))
	}
	var gaps []float64
	for i := range min(4, len(out)) {
		g := Group{Prompt: prompts[i]}
		for _, c := range out[i] {
			g.Completions = append(g.Completions, c.IDs)
		}
		logp, err := tokens.LogProbs[*processor.Prompt](m, []Group{g})
		if err != nil {
			b.Fatal(err)
		}
		for j, c := range out[i] {
			for k, x := range c.Sampled {
				gaps = append(gaps, math.Abs(x-logp[0][j][k]))
			}
		}
	}
	slices.Sort(gaps)
	say(b, "sampler gap over %d tokens: median %.3g, largest %.3g nats", len(gaps), gaps[len(gaps)/2], gaps[len(gaps)-1])
}

// decodeParts logs how long the parts of a recorded step take.
func decodeParts(b *testing.B, m *Model, s decodeShape) {
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	var all []*tokens.Sequence
	for i := range s.prompts {
		for j := range s.samples {
			all = append(all, &tokens.Sequence{Index: len(all), Prompt: i, Sample: j})
		}
	}
	o := GenerateOptions{SamplingOptions: DefaultSampling()}
	o.MaxNewTokens, o.Kernel = 64, s.kernel
	torchx.Synchronize()
	start := time.Now()
	d, err := m.BeginResident(s.ask(), all, &o)
	if err != nil {
		b.Fatal(err)
	}
	torchx.Synchronize()
	say(b, "prefill %.1f ms", 1e3*time.Since(start).Seconds())
	r, n := d.(*resident), len(all)
	like, c := m.Params().Flat(), m.cfg
	ids, u := torchx.FullLike(like, 5, torchx.Int64, n), torchx.FullLike(like, 0.5, torchx.Float64, n)
	hidden, logits := torchx.FullLike(like, 0.1, m.DType, n, c.Hidden), torchx.FullLike(like, 0, torchx.Float32, n, c.Vocab)
	q := torchx.FullLike(like, 0.1, m.DType, n, c.Heads, c.HeadDim)
	defer torchx.OnSideStream(ids)()
	scratch := func() torchx.Tensor { return torchx.Scale(logits, 1) }
	var before *torchx.Graph
	for _, part := range []struct {
		name  string
		often int
		f     func()
	}{
		{"step up to the logits", 16, func() { r.Next(ids) }},
		{"logits", 20, func() { r.m.Logits(hidden) }},
		{"copy of the logits", 20, func() { scratch() }},
		{"draw, plain", 20, func() {
			torchx.DrawTokens(scratch(), torchx.SampleOptions{Temperature: 1}, torchx.Tensor{}, torchx.Tensor{}, u, false)
		}},
		{"draw, τ 0.9", 20, func() {
			torchx.DrawTokens(scratch(), torchx.SampleOptions{Temperature: .9}, torchx.Tensor{}, torchx.Tensor{}, u, false)
		}},
		{"draw, top-p 0.9", 3, func() {
			torchx.DrawTokens(scratch(), torchx.SampleOptions{TopP: .9}, torchx.Tensor{}, torchx.Tensor{}, u, false)
		}},
		{"draw, top-k 50", 3, func() {
			torchx.DrawTokens(scratch(), torchx.SampleOptions{TopK: 50}, torchx.Tensor{}, torchx.Tensor{}, u, false)
		}},
		{"attention of all layers", 20, func() {
			for i := range c.Layers {
				torchx.AttendDecode(q, r.cache.K[i], r.cache.V[i], &r.spans, 0.1)
			}
		}},
		{"weights of all layers", 20, func() {
			for i := range r.m.text.layers {
				l, p := &r.m.text.layers[i], &lora.Pass{}
				l.qkv.Apply(hidden, r.m.DType, p)
				r.m.Apply(&l.o, hidden, p)
				r.m.Apply(&l.down, torchx.SwiGLUPair(l.gateUp.Apply(hidden, r.m.DType, p)), p)
			}
		}},
	} {
		eager := milliseconds(1, func() { defer torchx.Scope()(); part.f() })
		graph := torchx.Capture(before, part.f)
		before.Free()
		before = graph
		graph.Replay()
		say(b, "%-26s %7.3f ms recorded (%.1f ms the first time)", part.name, milliseconds(part.often, graph.Replay), eager)
	}
	eager := milliseconds(4, func() { defer torchx.Scope()(); r.Next(ids) })
	say(b, "step up to the logits, launched one by one: %.3f ms", eager)
	before.Free()
}

func milliseconds(n int, f func()) float64 {
	torchx.Synchronize()
	start := time.Now()
	for range n {
		f()
	}
	torchx.Synchronize()
	return 1e3 * time.Since(start).Seconds() / float64(n)
}

// say prints at once: a benchmark's log is shown at its end only.
func say(b *testing.B, format string, args ...any) {
	b.Helper()
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
