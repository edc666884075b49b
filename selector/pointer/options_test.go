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
			o.Head, o.Skip.Enabled = "none", true
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
			"candidate_heads: want a divisor"},
		{"something gives a score", func(o *Options) { o.Head = "none" }, "head: want cosine, bilinear or additive, or skip=true"},
		{"the relation is added to the skip term", func(o *Options) { o.Relation.GateDim = 3 }, "relation: want skip=true"},
		{"M holds all shots", func(o *Options) { o.Coarse.TopM, o.ShotNum = &two, &four },
			"coarse_top_m: want at least shot_num = 4, got 2"},
		{"two stages share out what is left", func(o *Options) { o.Coarse.TopM, o.Taken = &four, "minus_100" },
			"coarse_top_m: want null where a choice may come again"},
		{"stop before the end", func(o *Options) { o.Stop.Enabled, o.Stop.MinShots, o.ShotNum = true, 5, &four },
			"min_shots: want at most shot_num = 4, got 5"},
		{"diversity needs vectors", none(func(o *Options) { o.Diversity.Kind = "mmr" }), "diversity: want another head than none with mmr"},
		{"candidate encoder needs vectors", none(func(o *Options) { o.CandidateEncoder.Layers = 1 }),
			"candidate_layers: want another head"},
		{"slots need vectors", none(func(o *Options) { o.Decoder = "slots" }), "decoder: want another head"},
		{"coarse needs vectors", none(func(o *Options) { o.Coarse.TopM = &four }), "coarse_top_m: want another head"},
		{"stop needs a state", none(func(o *Options) { o.Stop.Enabled = true }), "stop: want another head"},
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
	path := saved(t, p, p.Metadata())
	three := 3
	for key, edit := range map[string]func(*Options){
		"selector.state_update":     func(o *Options) { o.StateUpdate = "gru" },
		"selector.diversity":        func(o *Options) { o.Diversity.Kind = "mmr" },
		"selector.head":             func(o *Options) { o.Head = "additive" },
		"selector.decoder":          func(o *Options) { o.Decoder = "slots" },
		"selector.candidate_layers": func(o *Options) { o.CandidateEncoder.Layers = 2 },
		"selector.coarse_top_m":     func(o *Options) { o.Coarse.TopM = &three },
		"selector.stop":             func(o *Options) { o.Stop.Enabled = false },
		"selector.distinct_steps":   func(o *Options) { o.DistinctSteps = 3 },
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

// TestRelationChosen: numbers left open are chosen for the rows; a checkpoint keeps them whatever rows it is given later, files from
// before there was a length keep rows as they are, and only another number contradicts a file.
func TestRelationChosen(t *testing.T) {
	for _, tc := range []struct {
		columns           int
		length, scale, by float64
	}{{768, 1.0003, 20, 1}, {256, 0.996, 20, 1}, {384, 1, 27, 1}, {64, 27.34, 160, 27}, {48, 0.1, 210, 0.1},
		{8, 3.94, 320, 3.9}, {512, 0, 20, 1}} {
		var r RelationOptions
		if r.Choose(tc.columns, tc.length); *r.Scale != tc.scale || *r.RowLength != tc.by {
			t.Errorf("%+v: chose %g and %g", tc, *r.Scale, *r.RowLength)
		}
	}
	torchx.Attach(1)
	opt := DefaultOptions()
	opt.Head, opt.Skip.Enabled = "none", true
	opt.Relation = RelationOptions{Bilinear: "symmetric", GateInitial: 5}
	trained := opt
	trained.Relation.Choose(12, 27)
	for _, tc := range []struct {
		name     string
		old      bool     // a file without row_length
		override *float64 // selector.relation.scale; nil: overridden with null
		by       float64
		refused  bool
	}{{"its own", false, nil, 27, false}, {"rows as they are", true, nil, 1, false}, {"another scale", false, new(3.0), 0, true}} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := New(trained, 12, 1, "cpu")
			if err != nil {
				t.Fatal(err)
			}
			defer p.Free()
			meta := p.Metadata()
			if tc.old {
				delete(meta, "selector.relation.row_length")
			}
			path, asked := saved(t, p, meta), opt
			asked.Relation.Scale = tc.override
			q, err := Open(path, OpenOptions{Options: asked, Dim: 12, RowLength: 5, Device: "cpu", Strict: true,
				Overridden: func(key string) bool { return key == "selector.relation.scale" }})
			if tc.refused {
				if conflict, ok := errors.AsType[*ConflictError](err); !ok || conflict.Trained != "320" {
					t.Errorf("got %v, want a conflict with 320", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer q.Free()
			resumed := opt
			if err := resumed.Chosen(path); err != nil {
				t.Fatal(err)
			}
			for _, r := range []RelationOptions{q.Options().Relation, resumed.Relation} {
				if *r.Scale != 320 || *r.RowLength != tc.by {
					t.Errorf("opened with %g and %g, want 320 and %g", *r.Scale, *r.RowLength, tc.by)
				}
			}
		})
	}
}

// saved writes the policy's weights and returns the file.
func saved(t *testing.T, p *Policy, metadata map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.safetensors")
	var tensors []tensorfile.Tensor
	for _, name := range p.params.Names() {
		tensors = append(tensors, tensorfile.FromFloat32s(name, p.params.Shape(name), torchx.Data[float32](p.params.Get(name))))
	}
	if err := tensorfile.WriteSafetensors(path, tensors, metadata); err != nil {
		t.Fatal(err)
	}
	return path
}
