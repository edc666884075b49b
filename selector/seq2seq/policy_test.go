package seq2seq

import (
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
)

// vocabulary is a small one: pad 0, end 1, begin 2, then letters.
func vocabulary() Vocabulary {
	begin := int64(2)
	return Vocabulary{Size: 40, Pad: 0, EOS: 1, BOS: &begin}
}

// scratch makes a model from random weights that computes in a millisecond.
func scratch(t testing.TB, model string, change func(*Options)) *Model {
	t.Helper()
	o := DefaultOptions()
	o.Scratch = ScratchOptions{Model: model, Width: 16, FF: 24, Layers: 2, DecoderLayers: 2, Heads: 2, Positions: 48}
	if change != nil {
		change(&o)
	}
	m, err := New(o, vocabulary(), "cpu", 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

func architecturesFromScratch() []string { return []string{"t5", "t5_v1_1", "bart"} }

func eachScratch(t *testing.T, f func(t *testing.T, model string)) {
	for _, model := range architecturesFromScratch() {
		t.Run(model, func(t *testing.T) { f(t, model) })
	}
}

// texts are three made-up sources of different lengths.
func texts() asked {
	return asked{{5, 9, 11, 30, 7, 12, 1}, {8, 8, 1}, {21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 1}}
}

// groupBatch has two sources with completions of different lengths, one of them padding.
func groupBatch() *selector.Batch {
	b := selector.NewBatch(texts(), []int{2, 0}, 3, 5)
	b.Set(0, 0, []int64{2, 10, 11, 12, 1}, 0)
	b.Set(0, 1, []int64{10, 1}, 0)
	b.Set(0, 2, []int64{33, 34, 35}, 0)
	b.Set(1, 0, []int64{14, 15, 1}, 0)
	b.Set(1, 2, []int64{1}, 0)
	return b
}

// TestCheckpointingChangesNothing: the same log-probabilities and gradients, but for the order of sums.
func TestCheckpointingChangesNothing(t *testing.T) {
	eachScratch(t, func(t *testing.T, model string) {
		run := func(on bool) (logp, grad []float64) {
			m := scratch(t, model, func(o *Options) { o.GradientCheckpointing = on })
			defer torchx.Scope()()
			m.Params().ZeroGrad()
			out := NewPolicy(m).Forward(groupBatch(), selector.ForwardOptions{}).LogP
			logp = out.Floats()
			torchx.Backward(torchx.Sum(out))
			return logp, m.Params().Grad().Floats()
		}
		logp, grad := run(false)
		again, gradAgain := run(true)
		golden.Close(t, again, logp, 0)
		golden.Close(t, gradAgain, grad, 1e-5*math.Max(slices.Max(grad), 1))
	})
}

// TestPadsAreNotTrained: a pad that BART reads gets no gradient by being read, only by being predicted: the head's share,
// Σ p(pad)·hidden where it is no target. T5's pad is its start token, and is trained.
func TestPadsAreNotTrained(t *testing.T) {
	for model, trained := range map[string]bool{"bart": false, "t5": true} {
		m := scratch(t, model, nil)
		pad := int(m.generation.Pad)
		gs := []Group{{Prompt: []int64{9, int64(pad), 8, 1}, Completions: [][]int64{{10, 11, 1}}}}
		end := torchx.Scope()
		hidden, targets, err := m.Hidden(gs, &lora.Pass{})
		if err != nil {
			t.Fatal(err)
		}
		p := torchx.Narrow(torchx.Softmax(m.Logits(torchx.Detach(hidden)), 1), 1, pad, 1)
		want := torchx.Sum(torchx.Mul(p, torchx.Detach(hidden)), 0).Floats()
		m.Params().ZeroGrad()
		logp, _ := m.TokenLogp(hidden, targets, 1)
		torchx.Backward(torchx.Neg(torchx.Sum(logp)))
		lo, _ := m.Params().Range(m.cfg.embedding())
		got := m.Params().Grad().Floats()[lo+pad*m.cfg.Width : lo+(pad+1)*m.cfg.Width]
		end()
		far := 0.0
		for i := range got {
			far = math.Max(far, math.Abs(got[i]-want[i]))
		}
		if (far > 1e-5) != trained {
			t.Errorf("%s: the pad's gradient is off the head's by %.2g", model, far)
		}
	}
}

// TestTheSourceMatters: what is said depends on every token of the source, and on no other source of the batch.
func TestTheSourceMatters(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m := openTiny(t, model, nil)
		f := fixture(t, model+".forward")
		source := unpadded(t, f)[2]
		group := func(ids []int64) Group { return Group{Prompt: ids, Completions: [][]int64{{7, 8, 9}}} }
		logp := func(gs ...Group) []float64 {
			out, err := m.LogProbs(gs)
			if err != nil {
				t.Fatal(err)
			}
			return out[0][0]
		}
		want := logp(group(source))
		golden.Close(t, logp(group(source), group(source[:4])), want, 1e-5)
		for _, at := range []int{0, len(source) / 2, len(source) - 1} {
			other := slices.Clone(source)
			other[at] = 42
			if slices.Equal(logp(group(other)), want) {
				t.Errorf("token %d of the source changes nothing", at)
			}
		}
	})
}

// TestTrainingMovesTheAdapters: a step changes A and B of every adapted module, raises the imitated answer's
// probability, and leaves the frozen weights alone.
func TestTrainingMovesTheAdapters(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m := openTiny(t, model, func(o *Options) { o.LoRA.Enabled = true })
		policy := NewPolicy(m)
		b := selector.NewBatch(asked{{9, 8, 7, 1}}, []int{0}, 1, 4)
		b.Set(0, 0, []int64{70, 71, 72, 1}, 0)
		adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0)
		defer adam.Free()
		fixed := m.Frozen().Tensors[m.cfg.embedding()]
		frozenBefore, before := fixed.Floats(), m.Params().Values()
		var losses []float64
		for range 3 { // in the first step B is zero, so A has no gradient
			end := torchx.Scope()
			m.Params().ZeroGrad()
			loss := torchx.Neg(torchx.Sum(policy.Forward(b, selector.ForwardOptions{Train: true}).LogP))
			losses = append(losses, loss.Item())
			torchx.Backward(loss)
			adam.Step(3e-3, 1)
			end()
		}
		if !(losses[2] < losses[1] && losses[1] < losses[0]) {
			t.Errorf("losses %v, want falling ones", losses)
		}
		after := m.Params().Values()
		for _, name := range m.Params().Names() {
			if lo, hi := m.Params().Range(name); slices.Equal(after[lo:hi], before[lo:hi]) {
				t.Errorf("%s did not move", name)
			}
		}
		golden.Close(t, fixed.Floats(), frozenBefore, 0)
	})
}

// TestScratchLearnsToCopy: a model from random weights learns to repeat the letters of its source.
func TestScratchLearnsToCopy(t *testing.T) {
	eachScratch(t, func(t *testing.T, model string) {
		m := scratch(t, model, func(o *Options) { o.Scratch.Width, o.Scratch.FF = 32, 64 })
		policy := NewPolicy(m)
		src := asked{{10, 11, 12, 1}, {12, 10, 1}, {13, 13, 11, 1}, {11, 12, 13, 10, 1}}
		b := selector.NewBatch(src, []int{0, 1, 2, 3}, 1, 6)
		for i, ids := range src {
			if model == "bart" {
				ids = append([]int64{2}, ids...)
			}
			b.Set(i, 0, ids, 0)
		}
		adam := torchx.NewAdamW(m.Params(), 0.9, 0.99, 1e-8, 0)
		defer adam.Free()
		// Every sequence has at least exp(-loss) of probability, so more than half of it below ln 2: each of its tokens is
		// then the most likely one, whatever the processor rounds. The weights are those that were measured: no step follows.
		var loss float64
		for step := 0; ; step++ {
			end := torchx.Scope()
			m.Params().ZeroGrad()
			nats := torchx.Neg(torchx.Sum(policy.Forward(b, selector.ForwardOptions{Train: true}).LogP))
			if loss = nats.Item(); loss < math.Ln2/2 || step == 1000 {
				end()
				break
			}
			torchx.Backward(nats)
			adam.Step(5e-3, min(1, 1/m.Params().GradNorm()))
			end()
		}
		said, scores := policy.Decode(src, []int{0, 1, 2, 3}, 6, 1)
		for i := range src {
			if got, want := said.Scored(i, 0), b.Scored(i, 0); !slices.Equal(got, want) {
				t.Errorf("source %d: got %v, want %v (score %.3f, last loss %.3f)", i, got, want, scores[i], loss)
			}
		}
	})
}

// TestTuned: the switches train all weights, or adapters, or both, and only those get a gradient.
func TestTuned(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		for _, tc := range []struct{ all, adapters bool }{{true, false}, {false, true}, {true, true}} {
			m := openTiny(t, model, func(o *Options) { o.TuneAll, o.LoRA.Enabled = tc.all, tc.adapters })
			var want []string
			if tc.all {
				for _, s := range m.cfg.weightNames() {
					want = append(want, s.Name)
				}
			}
			if tc.adapters {
				for _, l := range m.cfg.linears() {
					if tail := l.Name[strings.LastIndexByte(l.Name, '.')+1:]; slices.Contains(m.cfg.targets(), tail) {
						want = append(want, "base_model.model."+l.Name+".lora_A.weight", "base_model.model."+l.Name+".lora_B.weight")
					}
				}
			}
			if got := m.Params().Names(); !slices.Equal(got, want) {
				t.Fatalf("trained: %v, want %v", got, want)
			}
			end := torchx.Scope()
			m.Params().ZeroGrad()
			b := selector.NewBatch(asked{{9, 8, 7, 1}}, []int{0}, 1, 4)
			b.Set(0, 0, []int64{70, 71, 72, 1}, 0)
			torchx.Backward(torchx.Sum(NewPolicy(m).Forward(b, selector.ForwardOptions{}).LogP))
			grad := m.Params().Grad().Floats()
			end()
			for _, name := range m.Params().Names() {
				lo, hi := m.Params().Range(name)
				zero := !slices.ContainsFunc(grad[lo:hi], func(g float64) bool { return g != 0 })
				if fresh := strings.HasSuffix(name, "lora_A.weight"); zero != fresh { // A has none while B is zero
					t.Errorf("%s: gradient all zero: %v", name, zero)
				}
			}
		}
	})
}

// TestSample: completions of BART begin with the forced token, and a batch of padding has no log-probabilities.
func TestSample(t *testing.T) {
	policy := NewPolicy(scratch(t, "bart", nil))
	b := policy.Sample(texts(), []int{2, 0}, 6, 20, 1, 9)
	for at := range b.Valid {
		if ids := b.Scored(at/b.G, at%b.G); ids[0] != 2 {
			t.Errorf("candidate %d begins with %d, want the forced 2", at, ids[0])
		}
	}
	defer torchx.Scope()()
	if empty := policy.Forward(selector.NewBatch(texts(), []int{0}, 2, 3),
		selector.ForwardOptions{}).LogP; slices.Max(empty.Floats()) != 0 {
		t.Error("a batch of padding has log-probabilities")
	}
}

// TestCheckpoints: a model comes back from its trained tensors and metadata, a model from scratch without anything else,
// adapters and tuned weights onto their own base alone.
func TestCheckpoints(t *testing.T) {
	save := func(m *Model) string {
		path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
		var tensors []tensorfile.Tensor
		values := m.Params().Values()
		for _, name := range m.Params().Names() {
			lo, hi := m.Params().Range(name)
			tensors = append(tensors, tensorfile.FromFloat32s(name, m.Params().Shape(name), values[lo:hi]))
		}
		if err := tensorfile.WriteSafetensors(path, tensors, m.Metadata()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	group := Group{Prompt: []int64{9, 8, 7, 1}, Completions: [][]int64{{10, 11, 12}}}
	eachScratch(t, func(t *testing.T, model string) {
		m := scratch(t, model, nil)
		again, err := OpenCheckpoint(save(m), DefaultOptions(), "cpu", 99, nil) // other sizes and seed in the options
		if err != nil {
			t.Fatal(err)
		}
		defer again.Free()
		golden.Close(t, logitsOf(t, again, group), logitsOf(t, m, group), 0)
		if !slices.Equal(again.EOS(), m.EOS()) || again.generation.Start != m.generation.Start ||
			!slices.Equal(again.generation.ForcedBOS, m.generation.ForcedBOS) {
			t.Errorf("generation %+v, want %+v", again.generation, m.generation)
		}
	})
	each(t, func(t *testing.T, model string) {
		for name, m := range map[string]*Model{"adapters": withAdapter(t, model),
			"all": openTiny(t, model, func(o *Options) { o.TuneAll = true })} {
			perturb(m, 0.01, 1)
			path := save(m)
			opt := m.opt
			opt.Adapter, opt.TuneAll = nil, false
			again, err := OpenCheckpoint(path, opt, "cpu", 99, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			golden.Close(t, logitsOf(t, again, group), logitsOf(t, m, group), 1e-5)
			again.Free()
			other := filepath.Dir(golden.Shared(t, "seq2seq", models()[(slices.Index(models(), model)+1)%3], "config.json"))
			opt.Path = &other
			if _, err := OpenCheckpoint(path, opt, "cpu", 1, nil); err == nil {
				t.Errorf("%s: opened onto another base", name)
			}
			opt.Path = nil
			if _, err := OpenCheckpoint(path, opt, "cpu", 1, nil); err == nil || !strings.Contains(err.Error(), "seq2seq.path") {
				t.Errorf("%s without a base: got %v", name, err)
			}
			for _, value := range m.Metadata() {
				if strings.Contains(value, "/") {
					t.Errorf("metadata holds a path: %s", value)
				}
			}
		}
	})
}

// TestDropout: only in training, the same masks for the same seed, also when layers are computed twice.
func TestDropout(t *testing.T) {
	run := func(checkpointing bool, o selector.ForwardOptions) (logp, grad []float64) {
		m := withAdapter(t, "tiny_t5")
		m.Adapted().Dropout, m.opt.GradientCheckpointing = 0.3, checkpointing
		defer torchx.Scope()()
		m.Params().ZeroGrad()
		out := NewPolicy(m).Forward(groupBatch(), o).LogP
		logp = out.Floats()
		torchx.Backward(torchx.Sum(out))
		return logp, m.Params().Grad().Floats()
	}
	plain, _ := run(false, selector.ForwardOptions{DropoutSeed: 1})
	dropped, grad := run(false, selector.ForwardOptions{Train: true, DropoutSeed: 1})
	again, gradAgain := run(true, selector.ForwardOptions{Train: true, DropoutSeed: 1})
	other, _ := run(false, selector.ForwardOptions{Train: true, DropoutSeed: 2})
	golden.Close(t, again, dropped, 1e-5) // rows lie elsewhere, so products round differently
	golden.Close(t, gradAgain, grad, 1e-4)
	if slices.Equal(plain, dropped) || slices.Equal(dropped, other) {
		t.Error("dropout changes nothing, or the same for two seeds")
	}
}

// TestTrainingIsDeterministic: rollouts and updates from one seed give the same weights bit for bit, with one thread and
// with two.
func TestTrainingIsDeterministic(t *testing.T) {
	defer torchx.Attach(1)
	for _, model := range architecturesFromScratch() {
		run := func() []float32 {
			o := DefaultOptions()
			o.Scratch.Model = model
			m, err := New(o, vocabulary(), "cpu", 5)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free()
			policy := NewPolicy(m)
			adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0)
			defer adam.Free()
			for i := range 2 {
				end := torchx.Scope()
				b := policy.Sample(texts(), []int{0, 1, 2}, 3, 8, 1, uint64(i))
				m.Params().ZeroGrad()
				torchx.Backward(torchx.Neg(torchx.Sum(policy.Forward(b, selector.ForwardOptions{}).LogP)))
				adam.Step(1e-3, 1)
				end()
			}
			return m.Params().Values()
		}
		for _, threads := range []int{1, 2} {
			torchx.Attach(threads)
			if first := run(); !slices.Equal(first, run()) {
				t.Errorf("%s, %d threads: two runs end with different weights", model, threads)
			}
		}
	}
}

// TestMemoryIsFlat: forward, backward and update, rollouts and the reference's pass keep no tensor and no memory.
func TestMemoryIsFlat(t *testing.T) {
	steps := 1000
	if testing.Short() {
		steps = 60
	}
	eachScratch(t, func(t *testing.T, model string) {
		m := scratch(t, model, nil)
		policy := NewPolicy(m)
		reference := policy.Clone()
		defer reference.Free()
		adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0)
		defer adam.Free()
		step := func(i int) {
			defer torchx.Scope()()
			b := policy.Sample(texts(), []int{i % 3, (i + 1) % 3}, 2, 6, 1, uint64(i))
			m.Params().ZeroGrad()
			out := policy.Forward(b, selector.ForwardOptions{Train: true})
			kl := torchx.Sum(policy.KL(b, reference))
			if v := kl.Item(); v != v {
				t.Fatalf("step %d: KL %v", i, v)
			}
			torchx.Backward(torchx.Neg(torchx.Sum(out.LogP)))
			adam.Step(1e-4, 1)
		}
		const warm = 20
		var live int
		var resident float64
		for i := range steps {
			step(i)
			if i == warm {
				runtime.GC()
				live, resident = torchx.Live(), residentMB(t)
			}
		}
		runtime.GC()
		if now := torchx.Live(); now != live {
			t.Errorf("%d tensors alive after %d steps, %d after %d", now, steps, live, warm)
		}
		if grown := residentMB(t) - resident; grown > 16 {
			t.Errorf("%.0f MB more after %d steps", grown, steps-warm)
		}
	})
}

func residentMB(t *testing.T) float64 {
	t.Helper()
	fields := strings.Fields(readFile(t, "/proc/self/statm"))
	pages := 0.0
	for _, c := range fields[1] {
		pages = 10*pages + float64(c-'0')
	}
	return pages * 4096 / 1e6
}

// TestHalfPrecision: the type of computation decides, not what the configuration asks for.
func TestHalfPrecision(t *testing.T) {
	for dtype, want := range map[string]bool{"auto": false, "float32": false, "bfloat16": true} {
		m := scratch(t, "t5", func(o *Options) { o.DType = dtype })
		if got := NewPolicy(m).HalfPrecision(); got != want {
			t.Errorf("seq2seq.dtype=%s: half precision %v", dtype, got)
		}
	}
}
