package pointer

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
)

// TestRefusals: choices that cannot go together are refused with the key and the reason.
func TestRefusals(t *testing.T) {
	two, four := 2, 4
	none := func(edit func(*Options)) func(*Options) {
		return func(o *Options) {
			o.Encoder, o.Skip.Enabled = "none", true
			edit(o)
		}
	}
	for _, tc := range []struct {
		name string
		edit func(*Options)
		want string
	}{
		{"heads divide the width", func(o *Options) { o.NumHeads = 3 }, "num_heads: want a divisor of hidden_dim = 256, got 3"},
		{"the candidate encoder's too", func(o *Options) { o.CandidateEncoder = CandidateEncoderOptions{Layers: 1, Heads: 3, FFNDim: 8} },
			"candidate_encoder.heads: want a divisor"},
		{"something gives a score", func(o *Options) { o.Encoder = "none" }, "encoder: want attention, or skip.enabled"},
		{"the relation is added to the skip term", func(o *Options) { o.Relation.GateDim = 3 }, "relation: want skip.enabled"},
		{"M holds all shots", func(o *Options) { o.Coarse.TopM, o.ShotNum = &two, &four },
			"coarse.top_m: want at least shot_num = 4, got 2"},
		{"two stages share out what is left", func(o *Options) { o.Coarse.TopM, o.Taken = &four, "minus_100" },
			"coarse.top_m: want taken=excluded"},
		{"stop before the end", func(o *Options) { o.Stop.Enabled, o.Stop.MinShots, o.ShotNum = true, 5, &four },
			"stop.min_shots: want at most shot_num = 4, got 5"},
		{"diversity needs vectors", none(func(o *Options) { o.Diversity.Kind = "mmr" }), "diversity.kind: want encoder=attention with mmr"},
		{"candidate encoder needs vectors", none(func(o *Options) { o.CandidateEncoder.Layers = 1 }),
			"candidate_encoder.layers: want encoder=attention"},
		{"head needs vectors", none(func(o *Options) { o.Head = "additive" }), "head: want encoder=attention"},
		{"slots need vectors", none(func(o *Options) { o.Decoder = "slots" }), "decoder: want encoder=attention"},
		{"coarse needs vectors", none(func(o *Options) { o.Coarse.TopM = &four }), "coarse.top_m: want encoder=attention"},
		{"stop needs a state", none(func(o *Options) { o.Stop.Enabled = true }), "stop.enabled: want encoder=attention"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opt := DefaultOptions()
			tc.edit(&opt)
			if err := opt.Validate(); err == nil || !strings.Contains(strings.Replace(err.Error(), "=", ": ", 1), tc.want) &&
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	if err := DefaultOptions().Validate(); err != nil {
		t.Error(err)
	}
}

// TestContradictingAVariant: every architecture key that an override sets otherwise than the checkpoint is named.
func TestContradictingAVariant(t *testing.T) {
	v := presets()[len(presets())-1] // v4_10
	p := policy(t, v.opt, 5)
	path := filepath.Join(t.TempDir(), "c.safetensors")
	var tensors []tensorfile.Tensor
	for _, name := range p.params.Names() {
		tensors = append(tensors, tensorfile.FromFloat32s(name, p.params.Shape(name), torchx.Data[float32](p.params.Get(name))))
	}
	if err := tensorfile.WriteSafetensors(path, tensors, p.Metadata()); err != nil {
		t.Fatal(err)
	}
	three := 3
	for key, edit := range map[string]func(*Options){
		"selector.state_update":             func(o *Options) { o.StateUpdate = "gru" },
		"selector.diversity.kind":           func(o *Options) { o.Diversity.Kind = "mmr" },
		"selector.head":                     func(o *Options) { o.Head = "additive" },
		"selector.decoder":                  func(o *Options) { o.Decoder = "slots" },
		"selector.candidate_encoder.layers": func(o *Options) { o.CandidateEncoder.Layers = 2 },
		"selector.coarse.top_m":             func(o *Options) { o.Coarse.TopM = &three },
		"selector.stop.enabled":             func(o *Options) { o.Stop.Enabled = false },
		"selector.distinct_steps":           func(o *Options) { o.DistinctSteps = 3 },
	} {
		opt := v.opt
		edit(&opt)
		_, err := Open(path, OpenOptions{Options: opt, Overridden: func(k string) bool { return k == key }, Dim: 5, Device: "cpu",
			Strict: true})
		var conflict *ConflictError
		if !errors.As(err, &conflict) || conflict.Key != key {
			t.Errorf("%s: got %v, want a conflict", key, err)
		}
	}
}
