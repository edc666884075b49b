package policytest

import (
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/selector"
	"fulcrum/selector/prompts"
	"fulcrum/selector/seq2seq"
)

// encoderDecoders checks each architecture with all weights trained, and with adapters that have dropout, with and without
// gradient checkpointing.
func encoderDecoders(t *testing.T) {
	flat := func(name string) bool { return strings.HasSuffix(name, "k_proj.bias") } // moves all scores of a head alike
	for _, model := range []string{"t5", "t5_v1_1", "bart"} {
		t.Run(model, func(t *testing.T) {
			for _, checkpointing := range []bool{false, true} {
				whole := tinySeq2Seq(t, model, checkpointing)
				run(t, testCase{Policy: seq2seq.NewPolicy(whole), Batch: texts(), Flat: flat,
					Open: func(file string) (selector.Policy, error) {
						m, err := seq2seq.OpenCheckpoint(file, seq2seq.DefaultOptions(), "cpu", 99, nil) // other sizes and seed in the options
						if err != nil {
							return nil, err
						}
						return seq2seq.NewPolicy(m), nil
					}})
				exactKL(t, seq2seq.NewPolicy(whole), texts(), 0.02)
				adapted := seq2seq.NewPolicy(adaptedSeq2Seq(t, whole, checkpointing))
				run(t, testCase{Policy: adapted, Batch: texts(), Dropout: true, Flat: func(string) bool { return true }})
			}
		})
	}
	t.Run("a bias on the logits", func(t *testing.T) {
		o, path := seq2seq.DefaultOptions(), filepath.Dir(golden.Shared(t, "seq2seq", "tiny_bart", "config.json"))
		o.Path, o.TuneAll, o.LoRA.Enabled = &path, true, false
		exactKL(t, seq2seq.NewPolicy(openSeq2Seq(t, o)), texts(), 0.02)
	})
}

// tinySeq2Seq is a model from random weights that computes in a millisecond. Its vocabulary is pad 0, end 1, begin 2, then
// letters.
func tinySeq2Seq(t *testing.T, model string, checkpointing bool) *seq2seq.Model {
	t.Helper()
	o := seq2seq.DefaultOptions()
	o.GradientCheckpointing = checkpointing
	o.Scratch = seq2seq.ScratchOptions{Model: model, Width: 16, FF: 24, Layers: 2, DecoderLayers: 2, Heads: 2, Positions: 48}
	if std := 0.3; model == "bart" { // all scores are alike at the usual start
		o.Scratch.InitStd = &std
	}
	begin := int64(2)
	m, err := seq2seq.New(o, seq2seq.Vocabulary{Size: 40, Pad: 0, EOS: 1, BOS: &begin}, "cpu", 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// adaptedSeq2Seq has adapters with dropout that differ from zero.
func adaptedSeq2Seq(t *testing.T, whole *seq2seq.Model, checkpointing bool) *seq2seq.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model")
	if err := whole.SaveMerged(path, "float32"); err != nil {
		t.Fatal(err)
	}
	o := seq2seq.DefaultOptions()
	o.Path, o.LoRA.Enabled, o.LoRA.Dropout, o.GradientCheckpointing = &path, true, 0.4, checkpointing
	m := openSeq2Seq(t, o)
	disturb(m.Params(), 0.1)
	return m
}

func openSeq2Seq(t *testing.T, o seq2seq.Options) *seq2seq.Model {
	t.Helper()
	m, err := seq2seq.Open(o, "cpu", 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// texts has two sources with completions of different lengths, one of them padding.
func texts() *selector.Batch {
	source := prompts.List[[]int64]{Prompts: [][]int64{{5, 9, 11, 30, 7, 12, 1}, {8, 8, 1},
		{21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 1}}}
	b := selector.NewBatch(source, []int{2, 0}, 3, 5)
	b.Set(0, 0, []int64{2, 10, 11, 12, 1}, 0)
	b.Set(0, 1, []int64{10, 1}, 0)
	b.Set(0, 2, []int64{33, 34, 35}, 0)
	b.Set(1, 0, []int64{14, 15, 1}, 0)
	b.Set(1, 2, []int64{1}, 0)
	return b
}
