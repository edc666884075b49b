package vl

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/list"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
	"fulcrum/selector/weights"
)

// familyCase is a small model of a family, whose weights follow a formula, and transformers' logits behind the last of its ids
// (scripts/peers/goldens.py).
type familyCase struct {
	Name   string
	Config map[string]any
	IDs    []int64
	Grids  [][3]int // of pictures, whose rows follow a formula too
	Logits []float64
}

func familyCases(t *testing.T) (all []familyCase) {
	t.Helper()
	golden.JSON(t, "testdata/families.json", &all)
	return all
}

// folder writes the model's folder after edit, which may be nil, and returns its path.
func (f familyCase) folder(t *testing.T, edit func(map[string]any)) string {
	t.Helper()
	if edit != nil {
		edit(f.Config)
	}
	raw, err := json.Marshal(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := ParseConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	specs := cfg.weightNames()
	names := slices.Sorted(slices.Values(list.Map(specs, func(s torchx.Spec) string { return s.Name })))
	var all []tensorfile.Tensor
	for _, s := range specs {
		values, first := make([]float32, weights.Numel(s)), slices.Index(names, s.Name)
		for k := range values {
			wave := math.Sin(0.37*float64(k) + float64(first))
			switch {
			case len(s.Shape) > 1:
				wave *= 0.35
			case strings.HasSuffix(s.Name, ".weight"): // of norms
				wave = 1 + 0.1*wave
			default:
				wave *= 0.1
			}
			values[k] = float32(wave)
		}
		all = append(all, tensorfile.FromFloat32s(s.Name, s.Shape, values))
	}
	path := t.TempDir()
	if err := hffolder.Write(path, raw, nil, all, 0); err != nil {
		t.Fatal(err)
	}
	return path
}

// prompt returns the ids and pictures.
func (f familyCase) prompt() *processor.Prompt {
	p, k := &processor.Prompt{IDs: f.IDs}, 0
	for _, g := range f.Grids {
		picture := pixels.Patches{Grid: g, Rows: g[0] * g[1] * g[2], Key: fmt.Sprint(g)}
		for range picture.Rows * 96 {
			picture.Data = append(picture.Data, float32(math.Sin(0.11*float64(k))))
			k++
		}
		p.Images = append(p.Images, picture)
	}
	return p
}

// TestFamilies: the logits of each family are transformers', with layers apart and joined, and decoding with a cache gives the tokens
// that computing everything again gives.
func TestFamilies(t *testing.T) {
	for _, tc := range familyCases(t) {
		t.Run(tc.Name, func(t *testing.T) {
			m := mustOpenAt(t, tc.folder(t, nil))
			ask := tc.prompt()
			for _, joined := range []bool{false, true} {
				m.Joined = joined
				m.wire()
				logits := promptLogits(t, m, ask)
				golden.Close(t, logits[len(logits)-m.cfg.Vocab:], tc.Logits, 1e-4)
				sameFamilyTokens(t, m, ask)
			}
		})
	}
}

func sameFamilyTokens(t *testing.T, m *Model, ask *processor.Prompt) {
	t.Helper()
	var ids [3][]int64
	for i := range ids {
		opt := greedy()
		opt.OnDevice = i == 2
		out, err := tokens.Generate(uncachedOr(m, i == 1), []*processor.Prompt{ask}, 1, opt)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = out[0][0].IDs
	}
	if !slices.Equal(ids[0], ids[1]) || !slices.Equal(ids[0], ids[2]) {
		t.Errorf("with a cache %v, without %v, on the device %v", ids[0], ids[1], ids[2])
	}
}

// TestFamilyGradients: the gradient of every weight of each family, tower and mergers included, is that of central differences along a
// direction, in float64, also where layers are computed again in the backward pass; and prompts that share a trunk have the
// log-probabilities of separate ones, with and without pictures.
func TestFamilyGradients(t *testing.T) {
	for _, tc := range familyCases(t) {
		t.Run(tc.Name, func(t *testing.T) {
			path := tc.folder(t, nil)
			for _, again := range []bool{false, true} {
				opt := DefaultOptions()
				opt.Path, opt.DType, opt.LoRA.Enabled, opt.GradientCheckpointing = &path, "float64", false, again
				opt.TuneMMLLM, opt.TuneMMVision, opt.TuneMMMLP = true, tc.Grids != nil, tc.Grids != nil
				m, err := Open(opt, "cpu", 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Free()
				along := make([]float64, m.Params().Numel())
				for i := range along {
					along[i] = math.Sin(1.7 * float64(i))
				}
				flat, direction := torchx.Own(torchx.Scale(m.Params().Flat(), 1)), torchx.Own(torchx.From(along, len(along)))
				sum := func(step float64, backward bool) float64 {
					defer torchx.Scope()()
					torchx.Copy(m.Params().Flat(), torchx.Add(flat, torchx.Scale(direction, step)))
					batch := batchOf(tc.prompt(), [][]int64{{70, 71, 60}, {72, 60}})
					out := torchx.Sum(NewPolicy(m).Forward(batch, selector.ForwardOptions{Train: true}).LogP)
					if backward {
						m.Params().ZeroGrad()
						torchx.Backward(out)
					}
					return out.Floats()[0]
				}
				sum(0, true)
				want := 0.0
				for i, g := range m.Params().Grad().Floats() {
					want += g * along[i]
				}
				const step = 1e-6
				golden.Close(t, []float64{(sum(step, false) - sum(-step, false)) / (2 * step)}, []float64{want}, 1e-5*math.Max(1, math.Abs(want)))
			}
			m := mustOpenAt(t, path)
			groups := []Group{{Prompt: tc.prompt(), Completions: [][]int64{{70, 71, 60}, {72, 60}}},
				{Prompt: &processor.Prompt{IDs: tc.IDs[:2]}, Completions: [][]int64{{70, 71}}}}
			want, err := m.LogProbs(groups)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Shared{m}.LogProbs(groups)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				for j := range want[i] {
					golden.Close(t, got[i][j], want[i][j], 1e-4)
				}
			}
		})
	}
}

// TestFamilyKeys: what would change numbers and is not done is named, and a key that belongs to another family changes nothing, as in
// transformers.
func TestFamilyKeys(t *testing.T) {
	cases := map[string]familyCase{}
	for _, tc := range familyCases(t) {
		cases[tc.Name] = tc
	}
	for _, tc := range []struct {
		of, key string
		value   any
		want    string // "": read
	}{
		{"llama", "rope_parameters", map[string]any{"rope_type": "yarn", "factor": 2}, `rope_scaling type "yarn" is not supported: want default, linear or llama3`},
		{"llama", "rope_parameters", map[string]any{"rope_type": "linear"}, `rope type "linear": factor is missing`},
		{"llama 3", "rope_parameters", map[string]any{"rope_type": "llama3", "factor": 2, "low_freq_factor": 1}, "high_freq_factor is missing"},
		{"llama", "rope_parameters", map[string]any{"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"},
		{"llama", "partial_rotary_factor", 0.5, "partial_rotary_factor = 0.5 is not supported, want 1"},
		{"llama", "model_type", "mistral", `architecture "LlamaForCausalLM" has model_type "llama", the file says "mistral"`},
		{"qwen3", "use_sliding_window", true, "use_sliding_window = true is not supported"},
		{"mistral", "sliding_window", 0, "sliding_window = 0, want a number"},
		{"smollm3", "no_rope_layers", []int{1}, "no_rope_layers has 1 numbers, want one for each of 5 layers"},
		{"smollm3", "no_rope_layer_interval", 0, "no_rope_layer_interval = 0"},
		{"mistral", "attention_bias", true, ""},
		{"qwen3", "mlp_bias", true, ""},
		{"llama", "no_rope_layers", []int{0, 0}, ""},
		{"llama", "sliding_window", 3, ""},
	} {
		of := cases[tc.of]
		config := map[string]any{}
		for key, value := range of.Config {
			config[key] = value
		}
		config[tc.key] = tc.value
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ParseConfig(raw)
		if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %s = %v: got %v, want %q", tc.of, tc.key, tc.value, err, tc.want)
		} else if tc.want == "" && err != nil {
			t.Errorf("%s: %s = %v: %v", tc.of, tc.key, tc.value, err)
		} else if tc.want == "" {
			of.Config = config
			m := mustOpenAt(t, of.folder(t, nil))
			logits := promptLogits(t, m, &processor.Prompt{IDs: of.IDs})
			golden.Close(t, logits[len(logits)-m.cfg.Vocab:], of.Logits, 1e-4)
		}
	}
}

// TestWindowOfMistral: what its window would hide is refused, by whatever way the tokens come; null is no window, a missing key is the
// class's.
func TestWindowOfMistral(t *testing.T) {
	for _, tc := range familyCases(t) {
		if tc.Name != "mistral" {
			continue
		}
		if m := mustOpenAt(t, tc.folder(t, nil)); m.cfg.Window != 0 {
			t.Errorf("null is a window of %d", m.cfg.Window)
		}
		if m := mustOpenAt(t, tc.folder(t, func(c map[string]any) { delete(c, "sliding_window") })); m.cfg.Window != 4096 {
			t.Errorf("a missing key is a window of %d, want 4096", m.cfg.Window)
		}
		m := mustOpenAt(t, tc.folder(t, func(c map[string]any) { c["sliding_window"] = len(tc.IDs) + 4 }))
		ask, opt := []*processor.Prompt{{IDs: tc.IDs}}, greedy()
		for opt.MaxNewTokens = 4; opt.MaxNewTokens <= 5; opt.MaxNewTokens++ {
			_, plain := m.Generate(ask, 1, opt)
			_, shared := Shared{m}.Generate(ask, opt)
			group := []Group{{Prompt: ask[0], Completions: [][]int64{make([]int64, opt.MaxNewTokens)}}}
			_, scored := m.LogProbs(group)
			_, together := Shared{m}.LogProbs(group)
			for i, err := range []error{plain, shared, scored, together, m.CheckPrompt(len(tc.IDs), opt.MaxNewTokens)} {
				if refused := err != nil && strings.Contains(err.Error(), "the model sees 20 back"); refused != (opt.MaxNewTokens == 5) {
					t.Errorf("way %d, %d tokens: %v", i, opt.MaxNewTokens, err)
				}
			}
		}
	}
}
