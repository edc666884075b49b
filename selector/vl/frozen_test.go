package vl

import (
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/selector/vl/processor"
)

// TestNewFrozen: a model of random weights trains its adapters alone, is decided by the seed, and computes what the same
// weights in a folder do.
func TestNewFrozen(t *testing.T) {
	config, err := DefaultOptions().Scratch.configJSON(vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	opt := DefaultOptions()
	opt.DType = "float32"
	open := func(seed int64) *Model {
		m, err := NewFrozen(opt, config, "cpu", seed)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Free)
		return m
	}
	m, other := open(3), open(4)
	for _, name := range m.Params().Names() {
		if !strings.Contains(name, "lora_") {
			t.Errorf("%s is trained", name)
		}
	}
	ask := pictured(1)
	got := promptLogits(t, m, ask)
	golden.Close(t, promptLogits(t, open(3), ask), got, 0)
	if slices.Equal(promptLogits(t, other, ask), got) {
		t.Error("two seeds give the same logits")
	}
	dir := t.TempDir()
	if err := m.SaveMerged(dir, "float32"); err != nil {
		t.Fatal(err)
	}
	folder := opt
	folder.Path = &dir
	same, err := Open(folder, "cpu", 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer same.Free()
	golden.Close(t, promptLogits(t, same, ask), got, 0)
	if out, err := m.Generate([]*processor.Prompt{ask}, 2, greedy()); err != nil || len(out[0]) != 2 {
		t.Errorf("%d completions, %v", len(out[0]), err)
	}
}

// TestNewFrozenRefuses what it cannot make.
func TestNewFrozenRefuses(t *testing.T) {
	text := []byte(`{"model_type":"qwen2","vocab_size":32,"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":2}`)
	for want, of := range map[string]struct {
		config []byte
		change func(*Options)
	}{
		"config.json: ": {[]byte("{}"), func(*Options) {}},
		"text-only":     {text, func(o *Options) { o.TuneMMVision = true }},
		"target module": {text, func(o *Options) { o.LoRA.TargetModules = []string{"nothing"} }},
		"vl.dtype=int8": {text, func(o *Options) { o.DType = "int8" }},
	} {
		opt := DefaultOptions()
		of.change(&opt)
		m, err := NewFrozen(opt, of.config, "cpu", 1)
		if err == nil {
			m.Free()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
