package pointer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

func readWeights(t *testing.T, path string) *Checkpoint {
	t.Helper()
	c, err := ReadCheckpoint(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// units/checkpoints.json: what the reference's loaders and converter really restore. Where they lose
// weights silently, ours restore all of them.
func TestReferenceCheckpointCases(t *testing.T) {
	var cases []struct {
		Init    string
		Convert string `json:"convert_v3_to_v2"`
		Keys    any
		SFT     *struct {
			Lost []string `json:"params_not_taken_from_file"`
		} `json:"load_v3_from_sft_checkpoint on L1/init.ckpt"`
		GRPO *struct {
			Lost []string `json:"params_not_taken_from_file"`
		} `json:"load_v3_from_grpo_checkpoint on L1/init.ckpt"`
	}
	golden.JSON(t, golden.Shared(t, "parity", "units", "checkpoints.json"), &cases)
	seen := map[string]int{}
	for _, tc := range cases {
		switch {
		case tc.Init != "": // the trainer's state dict: every name and shape, in its order
			seen["init"]++
			c := readWeights(t, golden.Shared(t, "parity", "inits", tc.Init, "init.pt"))
			want := tc.Keys.(map[string]any)
			if len(c.Weights) != len(want) {
				t.Errorf("%s: %d parameters, want %d", tc.Init, len(c.Weights), len(want))
			}
			for name, shape := range want {
				if got := strings.ReplaceAll(fmt.Sprint(c.Weights[name].Shape), " ", ","); got != strings.ReplaceAll(fmt.Sprint(shape),
					" ", ",") {
					t.Errorf("%s: %s has shape %s, want %v", tc.Init, name, got, shape)
				}
			}
			if layers := len(want)/6 - 1; c.layers() != map[int]int{0: 1, 2: 3}[layers] {
				t.Errorf("%s: %d layers", tc.Init, c.layers())
			}
		case tc.Convert != "": // the converter keeps layer 0 alone, under names that the v2 model lacks (D4)
			seen["convert"]++
			c := readWeights(t, golden.Shared(t, "parity", "inits", tc.Convert, "init.pt"))
			out := filepath.Join(t.TempDir(), "v2.ckpt")
			if err := c.Export(out, "v2"); err != nil {
				t.Fatal(err)
			}
			f, err := tensorfile.ReadPT(out)
			if err != nil {
				t.Fatal(err)
			}
			state, _ := get[*tensorfile.Dict](f.Value.(*tensorfile.Dict), "state_dict")
			var theirs []string
			for _, key := range tc.Keys.([]any) {
				fixed := strings.NewReplacer(".cross_attn.", ".cross_attn_layers.0.", ".attn_norm.", ".attn_norms.0.").Replace(key.(string))
				theirs = append(theirs, fixed)
			}
			if len(state.Keys) != len(c.Weights) {
				t.Errorf("v2 of %s: %d parameters, want all %d", tc.Convert, len(state.Keys), len(c.Weights))
			}
			for _, key := range theirs {
				if _, ok := state.Get(key); !ok {
					t.Errorf("v2 of %s: no %s", tc.Convert, key)
				}
			}
			f.Close()
		case tc.SFT != nil || tc.GRPO != nil: // a Lightning file whose attention the reference leaves random
			seen["load"]++
			c := readWeights(t, golden.Shared(t, "parity", "inits", "L1", "init.ckpt"))
			p, err := Open(c.Path, OpenOptions{Options: DefaultOptions(), Dim: 768, Device: "cpu", Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			if p.Options().NumLayers != 1 || len(p.Params().Names()) != 11 {
				t.Errorf("%d layers, %d parameters, want 1 and 11", p.Options().NumLayers, len(p.Params().Names()))
			}
			for _, name := range p.Params().Names() {
				if !bytes.Equal(p.Params().Get(name).Bytes(), c.Weights[name].Data) {
					t.Errorf("%s was not taken from the file", name)
				}
			}
			p.Free()
		}
	}
	if want := map[string]int{"init": 2, "convert": 2, "load": 2}; !reflect.DeepEqual(seen, want) {
		t.Errorf("saw %v, want %v", seen, want)
	}
}

// foreign writes a state dict of a small selector in a layout of the test's choice.
func foreign(t *testing.T, layers int, edit func(state *tensorfile.Dict)) string {
	t.Helper()
	opt := Options{HiddenDim: 8, NumLayers: layers, NumHeads: 1, StateUpdate: "gate"}
	state := tensorfile.NewDict()
	state.Ordered = true
	for i, s := range Specs(opt, 12) {
		n := 1
		for _, d := range s.Shape {
			n *= d
		}
		v := make([]float32, n)
		for k := range v {
			v[k] = float32(i) + float32(k)/64
		}
		state.Set(s.Name, tensorfile.FromFloat32s("", s.Shape, v))
	}
	if edit != nil {
		edit(state)
	}
	path := filepath.Join(t.TempDir(), "state.pth")
	if err := tensorfile.WritePT(path, state); err != nil {
		t.Fatal(err)
	}
	return path
}

func openSmall(path string, strict bool, more ...func(*OpenOptions)) (*Policy, error) {
	o := OpenOptions{Options: DefaultOptions(), Dim: 12, Device: "cpu", Strict: strict}
	o.Options.HiddenDim = 8
	for _, f := range more {
		f(&o)
	}
	return Open(path, o)
}

func rename(state *tensorfile.Dict, from, to string) {
	i := slices.Index(state.Keys, any(from))
	state.Keys[i] = to
}

// Strict by default: what is unknown or missing is listed; nothing stays random unsaid.
func TestOpenIsStrict(t *testing.T) {
	for _, tc := range []struct {
		name   string
		layers int
		edit   func(*tensorfile.Dict)
		want   []string
	}{
		{"an unknown parameter", 1, func(s *tensorfile.Dict) { s.Set("extra.weight", tensorfile.Scalar(1)) },
			[]string{": unknown parameters [extra.weight] (init.strict=false"}},
		{"a missing one", 1, func(s *tensorfile.Dict) { rename(s, "cand_proj.weight", "cand.weight") },
			[]string{"unknown parameters [cand.weight], missing parameters [cand_proj.weight]"}},
		{"a gap in the layers", 3, func(s *tensorfile.Dict) {
			rename(s, "cross_attn_layers.1.in_proj_weight", "cross_attn_layers.9.in_proj_weight")
		}, []string{"cross_attn_layers.2.in_proj_weight", "cross_attn_layers.9.in_proj_weight"}},
		{"two entries for one parameter", 1, func(s *tensorfile.Dict) {
			v, _ := s.Get("attn_norms.0.bias")
			s.Set("lever_lm.pointer_selector.attn_norm.bias", v)
		}, []string{"two entries for parameter attn_norms.0.bias"}},
		{"another shape", 1, func(s *tensorfile.Dict) {
			s.Set("query_update_gate.bias", tensorfile.FromFloat32s("", []int{4}, make([]float32, 4)))
		}, []string{"query_update_gate.bias has shape [4], want [8]"}},
		{"integers", 1, func(s *tensorfile.Dict) {
			s.Set("query_update_gate.bias", tensorfile.Tensor{DType: tensorfile.I64, Shape: []int{8}, Data: make([]byte, 64)})
		}, []string{"query_update_gate.bias", "want a float type"}},
		{"NaN", 1, func(s *tensorfile.Dict) {
			s.Set("attn_norms.0.bias", tensorfile.FromFloat32s("", []int{8}, append(make([]float32, 7), nan())))
		}, []string{"attn_norms.0.bias holds NaN at 7"}},
		{"no tensor", 1, func(s *tensorfile.Dict) { s.Set("lr", 0.1) }, []string{`entry "lr" is a float, want only named tensors`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := openSmall(foreign(t, tc.layers, tc.edit), true)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		})
	}
	for _, names := range []string{"", "pointer_selector.", "lever_lm.pointer_selector."} {
		path := foreign(t, 2, func(s *tensorfile.Dict) {
			for i, key := range s.Keys {
				name := strings.Replace(strings.Replace(key.(string), "cross_attn_layers.0.", "cross_attn.", 1), "attn_norms.0.",
					"attn_norm.", 1)
				s.Keys[i] = names + name
			}
		})
		p, err := openSmall(path, true)
		if err != nil {
			t.Errorf("prefix %q: %v", names, err)
			continue
		}
		if p.Options().NumLayers != 2 {
			t.Errorf("prefix %q: %d layers, want 2", names, p.Options().NumLayers)
		}
		p.Free()
	}
}

func nan() float32 { var zero float32; return zero / zero }

// Not strictly, what is dropped and kept is said; as in the reference, more layers than the file has keep
// their initial values.
func TestOpenNotStrict(t *testing.T) {
	path := foreign(t, 1, func(s *tensorfile.Dict) { s.Set("extra.weight", tensorfile.Scalar(1)) })
	warned := ""
	p, err := openSmall(path, false, func(o *OpenOptions) {
		o.Options.NumLayers, o.Warn = 2, func(m string) { warned = m }
		o.Overridden = func(key string) bool { return key == "selector.num_layers" }
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	if strict, err := openSmall(path, false, func(o *OpenOptions) { o.Warn = func(m string) { warned += "\n" + m } }); err != nil ||
		!strings.HasSuffix(warned, ": unknown parameters [extra.weight] were dropped (init.strict=false)") {
		t.Errorf("%v; warned %q", err, warned)
	} else {
		strict.Free()
	}
	if p.Options().NumLayers != 2 || !strings.Contains(warned, "unknown parameters [extra.weight] were dropped") ||
		!strings.Contains(warned, "cross_attn_layers.1.in_proj_weight") {
		t.Errorf("%d layers; warned %q", p.Options().NumLayers, warned)
	}
	_, err = openSmall(foreign(t, 1, nil), true, func(o *OpenOptions) {
		o.Options.NumLayers, o.Overridden = 2, func(key string) bool { return key == "selector.num_layers" }
	})
	if conflict, ok := err.(*ConflictError); !ok || conflict.Trained != "1" {
		t.Errorf("an override that contradicts the file: %v", err)
	}
}

// A foreign selector is the reference's, whatever skip terms the configuration would give a fresh one.
func TestForeignArchitectureFollowsTheFile(t *testing.T) {
	p, err := openSmall(foreign(t, 1, nil), true, func(o *OpenOptions) { o.Options.Skip.Enabled = true; o.Options.Relation.GateDim = 4 })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	if p.Options().Skip.Enabled || p.Options().Variant != "v3" {
		t.Errorf("became %+v", p.Options())
	}
	for _, key := range []string{"selector.variant", "selector.temperature"} { // both are what the reference has
		_, err := openSmall(foreign(t, 1, nil), true, func(o *OpenOptions) {
			o.Options.Variant, o.Options.Temperature = "v3_skip", 0.2
			o.Overridden = func(k string) bool { return k == key }
		})
		if conflict, ok := err.(*ConflictError); !ok || conflict.Key != key {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Every layout and back, bit for bit: weights between any two, whole files within one.
func TestExportRoundTrips(t *testing.T) {
	for _, layers := range []int{1, 3} {
		source := readWeights(t, foreign(t, layers, nil))
		source.Metadata = map[string]string{"policy": "pointer", "phase": "grpo", "epoch": "4",
			"metrics": `{"kl":0.25,"kl_beta":0.15,"loss":1e-3,"val_loss":"nan"}`}
		for _, first := range ExportFormats() {
			for _, second := range ExportFormats() {
				t.Run(fmt.Sprintf("%d layers %s %s", layers, first, second), func(t *testing.T) {
					dir := t.TempDir()
					path := func(name, format string) string {
						if format == "safetensors" {
							return filepath.Join(dir, name+".safetensors")
						}
						return filepath.Join(dir, name+"."+format+".pt")
					}
					a, b, again := path("a", first), path("b", second), path("again", first)
					export(t, source, a, first)
					export(t, readWeights(t, a), b, second)
					back := readWeights(t, b)
					export(t, back, again, first)
					if len(back.Weights) != len(source.Weights) {
						t.Errorf("%d parameters, want %d", len(back.Weights), len(source.Weights))
					}
					for name, w := range source.Weights {
						if got := back.Weights[name]; !bytes.Equal(got.Data, w.Data) || !slices.Equal(got.Shape, w.Shape) ||
							got.DType != w.DType {
							t.Errorf("%s changed", name)
						}
					}
					if first == second {
						for _, pair := range [][2]string{{a, b}, {b, again}} {
							if !bytes.Equal(fileBytes(t, pair[0]), fileBytes(t, pair[1])) {
								t.Error("exported again it has other bytes")
							}
						}
					}
				})
			}
		}
	}
}

func export(t *testing.T, c *Checkpoint, path, format string) {
	t.Helper()
	if err := c.Export(path, format); err != nil {
		t.Fatal(err)
	}
}

func fileBytes(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What stands beside the weights in the reference's layouts.
func TestExportLayouts(t *testing.T) {
	c := readWeights(t, foreign(t, 2, nil))
	c.Metadata = map[string]string{"policy": "pointer", "phase": "grpo", "epoch": "4", "metrics": `{"kl":0.25,"kl_beta":0.15,"loss":0.5}`}
	read := func(format string) *tensorfile.Dict {
		path := filepath.Join(t.TempDir(), "x.pt")
		export(t, c, path, format)
		f, err := tensorfile.ReadPT(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f.Value.(*tensorfile.Dict)
	}
	pt := read("pt")
	if want := []any{"epoch", "phase", "model_state_dict", "kl_beta", "metrics"}; !reflect.DeepEqual(pt.Keys, want) {
		t.Errorf("pt has %v, want %v", pt.Keys, want)
	}
	if epoch, _ := pt.Get("epoch"); epoch != any(int64(3)) {
		t.Errorf("epoch %v, want 3: the reference counts from 0", epoch)
	}
	metrics, _ := get[*tensorfile.Dict](pt, "metrics")
	if want := []any{"kl", "grpo_loss"}; !reflect.DeepEqual(metrics.Keys, want) {
		t.Errorf("metrics %v, want %v", metrics.Keys, want)
	}
	beta, _ := pt.Get("kl_beta")
	if x, _ := asNumber(beta); x != any(0.15) {
		t.Errorf("kl_beta %v, want 0.15", x)
	}
	for format, attention := range map[string]string{"ckpt": "cross_attn.", "v2": "cross_attn_layers.0."} {
		top := read(format)
		if want := []any{"epoch", "global_step", "pytorch-lightning_version", "state_dict",
			"hyper_parameters"}; !reflect.DeepEqual(top.Keys, want) {
			t.Errorf("%s has %v, want %v", format, top.Keys, want)
		}
		state, _ := get[*tensorfile.Dict](top, "state_dict")
		for _, name := range []string{attention + "in_proj_weight", "cross_attn_layers.1.in_proj_weight", "query_proj.weight"} {
			if _, ok := state.Get("lever_lm.pointer_selector." + name); !ok {
				t.Errorf("%s lacks %s: %v", format, name, state.Keys)
			}
		}
	}
	// heads leave no trace in shapes: they travel beside the weights
	c.Metadata["selector.num_heads"], c.Metadata["selector.hidden_dim"] = "4", "8"
	path := filepath.Join(t.TempDir(), "heads.ckpt")
	export(t, c, path, "ckpt")
	p, err := openSmall(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	if p.Options().NumHeads != 4 {
		t.Errorf("%d heads, want 4", p.Options().NumHeads)
	}
}

// The reference's loader would drop or miss these silently, so they are refused by name.
func TestExportRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*Checkpoint)
		want string
	}{
		{"skip terms", func(c *Checkpoint) { c.Weights["skip_scale"] = tensorfile.FromFloat32s("", []int{1}, []float32{1}) },
			"no place for [skip_scale]"},
		{"no gate", func(c *Checkpoint) { delete(c.Weights, "query_update_gate.bias") }, "needs [query_update_gate.bias]"},
		{"another temperature", func(c *Checkpoint) { c.Metadata["selector.temperature"] = "0.07" }, "selector.temperature=0.07"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := readWeights(t, foreign(t, 1, nil))
			tc.edit(c)
			for _, format := range []string{"pt", "ckpt", "v2"} {
				path := filepath.Join(t.TempDir(), "x.pt")
				if err := c.Export(path, format); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: error %v, want %q", format, err, tc.want)
				}
				if _, err := os.Stat(path); err == nil {
					t.Errorf("%s: a file was left", format)
				}
			}
			if err := c.Export(filepath.Join(t.TempDir(), "x.safetensors"), "safetensors"); err != nil {
				t.Errorf("safetensors: %v", err)
			}
		})
	}
	if err := readWeights(t, foreign(t, 1, nil)).Export("x", "onnx"); err == nil ||
		!strings.Contains(err.Error(), "unknown export format") {
		t.Errorf("an unknown format: %v", err)
	}
}
