package vl

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// vocabulary is a small one: bytes, then the special ids.
func vocabulary() Vocabulary {
	return Vocabulary{Size: 264, EOS: []int64{256}, Pad: 257, VisionStart: 258, VisionEnd: 259, VisionPad: 260, Image: 261, Video: 262}
}

// tinyOptions are scratch sizes that compute in a millisecond.
func tinyOptions() Options {
	o := DefaultOptions()
	o.Scratch = ScratchOptions{HiddenSize: 16, IntermediateSize: 24, Layers: 2, Heads: 2, KVHeads: 1, RopeTheta: 10000, InitStd: 0.3,
		Vision: ScratchVisionOptions{Depth: 2, HiddenSize: 16, IntermediateSize: 20, Heads: 2, Window: 56, FullBlocks: []int{1}}}
	return o
}

func scratch(t *testing.T, change func(*Options)) *Model {
	t.Helper()
	o := tinyOptions()
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

// pictured is a made-up prompt with an image of 4×8 patches and a video of two frame pairs of 4×4; seed changes the pixels.
func pictured(seed int64) *processor.Prompt {
	noise := func(name string, t, h, w int) pixels.Patches {
		r := rng.New(seed, name)
		p := pixels.Patches{Rows: t * h * w, Grid: [3]int{t, h, w}, Key: fmt.Sprint(name, seed), Data: make([]float32, t*h*w*1176)}
		for i := range p.Data {
			p.Data[i] = float32(r.NormFloat64())
		}
		return p
	}
	ids := []int64{'l', 'o', 'o', 'k', 258}
	ids = append(ids, slices.Repeat([]int64{261}, 8)...)
	ids = append(ids, 259, 258)
	ids = append(ids, slices.Repeat([]int64{262}, 8)...)
	ids = append(ids, 259, '?')
	video := noise("video", 2, 4, 4)
	video.SecondsPerGrid = 1
	return &processor.Prompt{IDs: ids, Images: []pixels.Patches{noise("image", 1, 4, 8)}, Videos: []pixels.Patches{video}}
}

// groupBatch has two prompts with completions of different lengths, one of them padding.
func groupBatch() *selector.Batch {
	b := selector.NewBatch(asked{pictured(1), {IDs: []int64{'h', 'i'}}, pictured(2)}, []int{0, 1}, 3, 4)
	b.Set(0, 0, []int64{'a', 'b', 'c', 256}, 0)
	b.Set(0, 1, []int64{'a', 256}, 0)
	b.Set(0, 2, []int64{'x', 'y', 'z'}, 0)
	b.Set(1, 0, []int64{'n', 'o', 256}, 0)
	b.Set(1, 2, []int64{256}, 0)
	return b
}

// TestCheckpointingChangesNothing: the same log-probabilities and gradients, bit for bit.
func TestCheckpointingChangesNothing(t *testing.T) {
	run := func(on bool) (logp, grad []float64) {
		m := scratch(t, func(o *Options) { o.GradientCheckpointing = on })
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
	golden.Close(t, gradAgain, grad, 0)
}

// TestBlankingTheImageChangesLogProbs: the answer's log-probabilities depend on what the image and the video show.
func TestBlankingTheImageChangesLogProbs(t *testing.T) {
	blank := func(p *processor.Prompt) *processor.Prompt {
		q := *p
		q.Images, q.Videos = slices.Clone(p.Images), slices.Clone(p.Videos)
		for _, list := range [][]pixels.Patches{q.Images, q.Videos} {
			for i := range list {
				list[i].Data, list[i].Key = make([]float32, len(list[i].Data)), fmt.Sprint("blank ", len(list[i].Data))
			}
		}
		return &q
	}
	answer := [][]int64{{'r', 'e', 'd', 256}}
	for _, tc := range []struct {
		name  string
		model *Model
		ask   *processor.Prompt
	}{
		{"scratch", scratch(t, nil), pictured(1)},
		{"tiny_tied", openTiny(t, "tiny_tied", nil), prompt(t, "one_image")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer torchx.Scope()()
			defer torchx.NoGrad()()
			logp := func(p *processor.Prompt) []float64 {
				return NewPolicy(tc.model).Forward(batchOf(p, answer), selector.ForwardOptions{}).LogP.Floats()
			}
			seen, unseen := logp(tc.ask), logp(blank(tc.ask))
			for i := range seen {
				if math.Abs(seen[i]-unseen[i]) < 1e-3 {
					t.Errorf("token %d: %.6f with the image, %.6f without it", i, seen[i], unseen[i])
				}
			}
			golden.Close(t, logp(tc.ask), seen, 0)
		})
	}
}

// TestTrainingMovesTheAdapters: a step changes A and B of every adapted module, raises the imitated answer's
// probability, and leaves the frozen weights alone.
func TestTrainingMovesTheAdapters(t *testing.T) {
	m := openTiny(t, "tiny_tied", func(o *Options) { o.LoRA.Enabled = true })
	policy := NewPolicy(m)
	b := batchOf(prompt(t, "one_image"), [][]int64{{70, 71, 72, 602}})
	adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0)
	defer adam.Free()
	fixed := m.Frozen().Tensors["model.layers.0.self_attn.q_proj.weight"]
	frozenBefore, before := fixed.Floats(), m.Params().Values()
	var losses []float64
	for range 3 { // in the first step B is zero, so A has no gradient
		end := torchx.Scope()
		m.Params().ZeroGrad()
		loss := torchx.Neg(torchx.Sum(policy.Forward(b, selector.ForwardOptions{}).LogP))
		losses = append(losses, loss.Item())
		torchx.Backward(loss)
		adam.Step(1e-2, 1)
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
}

// TestScratchLearnsToSee: a model from random weights learns to answer the same question by what the picture shows.
func TestScratchLearnsToSee(t *testing.T) {
	m := scratch(t, func(o *Options) { o.Scratch.InitStd = 0.1 })
	policy := NewPolicy(m)
	src, queries, answers := asked{}, []int{}, []string{"red", "green", "blue", "pink"}
	b := selector.NewBatch(nil, make([]int, len(answers)), 1, 6)
	for i, answer := range answers {
		src, queries = append(src, pictured(int64(i))), append(queries, i)
		ids := []int64{}
		for _, c := range []byte(answer) {
			ids = append(ids, int64(c))
		}
		b.Set(i, 0, append(ids, 256), 0)
	}
	b.Source, b.Queries = src, queries
	adam := torchx.NewAdamW(m.Params(), 0.9, 0.99, 1e-8, 0)
	defer adam.Free()
	for range 150 {
		end := torchx.Scope()
		m.Params().ZeroGrad()
		torchx.Backward(torchx.Neg(torchx.Sum(policy.Forward(b, selector.ForwardOptions{Train: true}).LogP)))
		adam.Step(5e-3, min(1, 1/m.Params().GradNorm()))
		end()
	}
	said, _ := policy.Decode(src, queries, 6, 1)
	for i, answer := range answers {
		if got, want := said.Scored(i, 0), b.Scored(i, 0); !slices.Equal(got, want) {
			t.Errorf("picture %d: got %v, want %v (%s)", i, got, want, answer)
		}
	}
}

// TestTunedParts: each switch trains the tensors of its part, and only those get a gradient.
func TestTunedParts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   func(name string) bool
	}{
		{"decoder", func(o *Options) { o.TuneMMLLM = true }, func(n string) bool { return !strings.HasPrefix(n, "visual.") }},
		{"vision tower", func(o *Options) { o.TuneMMVision = true }, func(n string) bool {
			return strings.HasPrefix(n, "visual.") && !strings.HasPrefix(n, "visual.merger.")
		}},
		{"merger", func(o *Options) { o.TuneMMMLP = true }, func(n string) bool { return strings.HasPrefix(n, "visual.merger.") }},
		{"decoder and adapters", func(o *Options) { o.TuneMMLLM, o.LoRA.Enabled = true, true },
			func(n string) bool { return !strings.HasPrefix(n, "visual.") }},
		{"merger and adapters", func(o *Options) { o.TuneMMMLP, o.LoRA.Enabled = true, true },
			func(n string) bool { return strings.HasPrefix(n, "visual.merger.") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := openTiny(t, "tiny_tied", tc.change)
			var want []string
			for _, s := range m.cfg.weightNames() {
				if tc.want(s.Name) {
					want = append(want, s.Name)
				}
			}
			if m.opt.LoRA.Enabled {
				adapted, err := m.Adapted().Select(m.cfg.linears())
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range adapted {
					want = append(want, "base_model.model."+a.Name+".lora_A.weight", "base_model.model."+a.Name+".lora_B.weight")
				}
			}
			if got := m.Params().Names(); !slices.Equal(got, want) {
				t.Fatalf("trained: %v, want %v", got, want)
			}
			defer torchx.Scope()()
			m.Params().ZeroGrad()
			torchx.Backward(torchx.Sum(NewPolicy(m).Forward(batchOf(prompt(t, "one_image"), [][]int64{{70, 602}}),
				selector.ForwardOptions{}).LogP))
			grad := m.Params().Grad().Floats()
			for _, name := range m.Params().Names() {
				lo, hi := m.Params().Range(name)
				zero := !slices.ContainsFunc(grad[lo:hi], func(g float64) bool { return g != 0 })
				if fresh := strings.HasSuffix(name, "lora_A.weight"); zero != fresh { // A has none while B is zero
					t.Errorf("%s: gradient all zero: %v", name, zero)
				}
			}
		})
	}
}

// TestCheckpoints: a model comes back from its trained tensors and metadata, a model from scratch without anything else,
// adapters onto their own base alone.
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
	logp := func(m *Model, p *processor.Prompt) []float64 {
		defer torchx.Scope()()
		defer torchx.NoGrad()()
		return NewPolicy(m).Forward(batchOf(p, [][]int64{{70, 71, 72}}), selector.ForwardOptions{}).LogP.Floats()
	}
	t.Run("adapters", func(t *testing.T) {
		m := withAdapter(t, "mid")
		path := save(m)
		opt := m.opt
		opt.Adapter = nil
		again, err := OpenCheckpoint(path, opt, "cpu", 99, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Free()
		golden.Close(t, logp(again, prompt(t, "one_image")), logp(m, prompt(t, "one_image")), 0)
		other := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_untied_bf16", "config.json"))
		opt.Path = &other
		if _, err := OpenCheckpoint(path, opt, "cpu", 1, nil); err == nil || !strings.Contains(err.Error(), "fingerprint") {
			t.Errorf("onto another base: got %v", err)
		}
		opt.Path = nil
		if _, err := OpenCheckpoint(path, opt, "cpu", 1, nil); err == nil || !strings.Contains(err.Error(), "vl.path") {
			t.Errorf("without a base: got %v", err)
		}
		for _, value := range m.Metadata() {
			if strings.Contains(value, "/") {
				t.Errorf("metadata holds a path: %s", value)
			}
		}
	})
}

// TestDropout: only in training, the same masks for the same seed, also when layers are computed twice.
func TestDropout(t *testing.T) {
	run := func(checkpointing bool, o selector.ForwardOptions) (logp, grad []float64) {
		m := withAdapter(t, "mid")
		m.Adapted().Dropout, m.opt.GradientCheckpointing = 0.3, checkpointing
		defer torchx.Scope()()
		m.Params().ZeroGrad()
		out := NewPolicy(m).Forward(batchOf(prompt(t, "one_image"), [][]int64{{70, 71, 602}}), o).LogP
		logp = out.Floats()
		torchx.Backward(torchx.Sum(out))
		return logp, m.Params().Grad().Floats()
	}
	plain, _ := run(false, selector.ForwardOptions{DropoutSeed: 1})
	dropped, grad := run(false, selector.ForwardOptions{Train: true, DropoutSeed: 1})
	again, gradAgain := run(true, selector.ForwardOptions{Train: true, DropoutSeed: 1})
	other, _ := run(false, selector.ForwardOptions{Train: true, DropoutSeed: 2})
	golden.Close(t, again, dropped, 0)
	golden.Close(t, gradAgain, grad, 1e-4) // gradients of a layer's input are added in another order
	if slices.Equal(plain, dropped) || slices.Equal(dropped, other) {
		t.Error("dropout changes nothing, or the same for two seeds")
	}
}

// TestTrainingIsDeterministic: rollouts and updates from one seed give the same weights bit for bit, with one thread and
// with two.
func TestTrainingIsDeterministic(t *testing.T) {
	defer torchx.Attach(1)
	run := func() []float32 {
		m, err := New(DefaultOptions(), vocabulary(), "cpu", 5)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		policy := NewPolicy(m)
		adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0)
		defer adam.Free()
		for i := range 2 {
			end := torchx.Scope()
			src := asked{pictured(1), pictured(2)}
			b := policy.Sample(src, []int{0, 1}, 3, 8, 1, uint64(i))
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
			t.Errorf("%d threads: two runs end with different weights", threads)
		}
	}
}

// TestMemoryIsFlat: forward, backward and update, rollouts and the reference's pass keep no tensor and no memory.
func TestMemoryIsFlat(t *testing.T) {
	steps := 1000
	if testing.Short() {
		steps = 60
	}
	m := scratch(t, nil)
	policy := NewPolicy(m)
	reference := policy.Clone()
	defer reference.Free()
	adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0)
	defer adam.Free()
	step := func(i int) {
		defer torchx.Scope()()
		src := asked{pictured(int64(i % 3)), {IDs: []int64{'h', 'i'}}}
		b := policy.Sample(src, []int{0, 1}, 2, 6, 1, uint64(i))
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
}

func residentMB(t *testing.T) float64 {
	t.Helper()
	var pages, rss int
	if _, err := fmt.Sscan(readFile(t, "/proc/self/statm"), &pages, &rss); err != nil {
		t.Fatal(err)
	}
	return float64(rss) * 4096 / 1e6
}
