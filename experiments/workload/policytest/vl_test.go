package policytest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/selector"
	"fulcrum/selector/prompts"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// visionLanguage checks Qwen2.5-VL with all weights trained, with and without gradient checkpointing, and with dropout on
// adapters of the decoder and the vision tower.
func visionLanguage(t *testing.T) {
	flat := func(name string) bool { return strings.HasSuffix(name, "k_proj.bias") } // moves all scores of a head nearly alike
	for _, checkpointing := range []bool{false, true} {
		whole := tinyVL(t, checkpointing)
		run(t, testCase{Policy: vl.NewPolicy(whole), Batch: picturesAndText(), Flat: flat,
			Open: func(file string) (selector.Policy, error) {
				m, err := vl.OpenCheckpoint(file, vl.DefaultOptions(), "cpu", 99, nil) // other sizes and seed in the options
				if err != nil {
					return nil, err
				}
				return vl.NewPolicy(m), nil
			}})
		exactKL(t, vl.NewPolicy(whole), picturesAndText(), 0.05)
		adapted := vl.NewPolicy(adaptedVL(t, whole, checkpointing))
		run(t, testCase{Policy: adapted, Batch: picturesAndText(), Dropout: true, Flat: func(string) bool { return true }})
	}
}

// tinyVL is a model from random weights that computes in a millisecond. Its vocabulary is bytes, then the special ids.
func tinyVL(t *testing.T, checkpointing bool) *vl.Model {
	t.Helper()
	o := vl.DefaultOptions()
	o.GradientCheckpointing = checkpointing
	o.Scratch = vl.ScratchOptions{HiddenSize: 16, IntermediateSize: 24, Layers: 2, Heads: 2, KVHeads: 1, RopeTheta: 10000, InitStd: 0.3,
		Vision: vl.ScratchVisionOptions{Depth: 2, HiddenSize: 16, IntermediateSize: 20, Heads: 2, Window: 56, FullBlocks: []int{1}}}
	vocab := vl.Vocabulary{Size: 264, EOS: []int64{256}, Pad: 257, VisionStart: 258, VisionEnd: 259, VisionPad: 260, Image: 261, Video: 262}
	m, err := vl.New(o, vocab, "cpu", 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// adaptedVL has adapters with dropout that differ from zero.
func adaptedVL(t *testing.T, whole *vl.Model, checkpointing bool) *vl.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model")
	if err := whole.SaveMerged(path, "float32"); err != nil {
		t.Fatal(err)
	}
	o := vl.DefaultOptions()
	o.Path, o.GradientCheckpointing = &path, checkpointing
	o.LoRA.Enabled, o.LoRA.Dropout = true, 0.4
	o.LoRA.TargetModules = []string{"q_proj", "down_proj", "qkv", "proj", "0", "2"}
	m, err := vl.Open(o, "cpu", 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	if !slices.ContainsFunc(m.Params().Names(), func(name string) bool { return !vl.Reads(name, false) }) {
		t.Fatal("no adapters in the vision tower")
	}
	disturb(m.Params(), 0.1)
	return m
}

// picture is a made-up prompt with an image of 4×8 patches and a video of two frame pairs of 4×4; seed changes the pixels.
func picture(seed int64) *processor.Prompt {
	noise := func(name string, t, h, w int) pixels.Patches {
		r := rng.New(seed, name)
		p := pixels.Patches{Rows: t * h * w, Grid: [3]int{t, h, w}, Key: fmt.Sprint(name, seed), Data: make([]float32, t*h*w*1176)}
		for i := range p.Data {
			p.Data[i] = float32(r.NormFloat64())
		}
		return p
	}
	ids := slices.Concat([]int64{'l', 'o', 'o', 'k', 258}, slices.Repeat([]int64{261}, 8), []int64{259, 258},
		slices.Repeat([]int64{262}, 8), []int64{259, '?'})
	video := noise("video", 2, 4, 4)
	video.SecondsPerGrid = 1
	return &processor.Prompt{IDs: ids, Images: []pixels.Patches{noise("image", 1, 4, 8)}, Videos: []pixels.Patches{video}}
}

// picturesAndText has two prompts with completions of different lengths, one of them padding.
func picturesAndText() *selector.Batch {
	source := prompts.List[*processor.Prompt]{Prompts: []*processor.Prompt{picture(1), {IDs: []int64{'h', 'i'}}, picture(2)}}
	b := selector.NewBatch(source, []int{0, 1}, 3, 4)
	b.Set(0, 0, []int64{'a', 'b', 'c', 256}, 0)
	b.Set(0, 1, []int64{'a', 256}, 0)
	b.Set(0, 2, []int64{'x', 'y', 'z'}, 0)
	b.Set(1, 0, []int64{'n', 'o', 256}, 0)
	b.Set(1, 2, []int64{256}, 0)
	return b
}
