package lora

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

func layers() []Linear {
	var out []Linear
	for _, name := range []string{"visual.blocks.0.mlp.gate_proj", "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.gate_proj",
		"model.layers.1.self_attn.q_proj", "lm_head"} {
		out = append(out, Linear{Name: name, In: 8, Out: 8, Public: hffolder.Newer(name)})
	}
	return out
}

// TestSelect: what PEFT would adapt, with which rank and scale.
func TestSelect(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config string
		want   string // name:rank:scale
	}{
		{"last components match in both towers", `{"r": 4, "lora_alpha": 8, "target_modules": ["gate_proj"]}`,
			"visual.blocks.0.mlp.gate_proj:4:2 model.layers.0.mlp.gate_proj:4:2"},
		{"longer tails match", `{"r": 4, "lora_alpha": 8, "target_modules": ["mlp.gate_proj", "1.self_attn.q_proj"]}`,
			"visual.blocks.0.mlp.gate_proj:4:2 model.layers.0.mlp.gate_proj:4:2 model.layers.1.self_attn.q_proj:4:2"},
		{"a string is a pattern of the whole name", `{"r": 2, "lora_alpha": 2, "target_modules": "model\\.layers\\..*q_proj"}`,
			"model.layers.0.self_attn.q_proj:2:1 model.layers.1.self_attn.q_proj:2:1"},
		{"all-linear leaves the head out", `{"r": 1, "lora_alpha": 1, "target_modules": "all-linear"}`,
			"visual.blocks.0.mlp.gate_proj:1:1 model.layers.0.self_attn.q_proj:1:1 model.layers.0.mlp.gate_proj:1:1 " +
				"model.layers.1.self_attn.q_proj:1:1"},
		{"patterns change rank and alpha",
			`{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "rank_pattern": {"layers.1.self_attn.q_proj": 2}, "alpha_pattern": {"q_proj": 4}}`, "model.layers.0.self_attn.q_proj:4:1 model.layers.1.self_attn.q_proj:2:2"},
		{"PEFT's own names, in all three", `{"r": 4, "lora_alpha": 8, "target_modules": "model\\.language_model\\..*q_proj",
			"rank_pattern": {"model.language_model.layers.1.self_attn.q_proj": 2},
			"alpha_pattern": {"model.language_model.layers.0.self_attn.q_proj": 32}}`,
			"model.layers.0.self_attn.q_proj:4:8 model.layers.1.self_attn.q_proj:2:4"},
		{"PEFT's own names in a list", `{"r": 4, "lora_alpha": 8, "target_modules": ["model.visual.blocks.0.mlp.gate_proj", "lm_head"]}`,
			"visual.blocks.0.mlp.gate_proj:4:2 lm_head:4:2"},
		{"rslora divides by the root", `{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "use_rslora": true}`,
			"model.layers.0.self_attn.q_proj:4:4 model.layers.1.self_attn.q_proj:4:4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := ParseConfig([]byte(tc.config))
			if err != nil {
				t.Fatal(err)
			}
			modules, err := c.Select(layers())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range modules {
				got = append(got, fmt.Sprintf("%s:%d:%g", m.Name, m.Rank, m.Scale))
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), tc.want)
			}
			raw, err := c.JSON()
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParseConfig(raw)
			if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", fill(c)) {
				t.Errorf("written and read: %+v (%v), want %+v", again, err, c)
			}
		})
	}
}

// fill makes absent maps empty ones, as the file has them.
func fill(c Config) Config {
	if c.RankPattern == nil {
		c.RankPattern = map[string]int{}
	}
	if c.AlphaPattern == nil {
		c.AlphaPattern = map[string]float64{}
	}
	return c
}

// TestRefused: what is not plain adapters is named, not ignored.
func TestRefused(t *testing.T) {
	for _, tc := range []struct{ config, want string }{
		{`{"modules_to_save": ["lm_head"]}`, `modules_to_save = ["lm_head"] is not supported`},
		{`{"use_dora": true}`, "use_dora = true is not supported"},
		{`{"bias": "lora_only"}`, `bias = "lora_only" is not supported (want "none" or null)`},
		{`{"init_lora_weights": "pissa"}`, `init_lora_weights = "pissa" is not supported`},
		{`{"layers_to_transform": [1, 2]}`, "layers_to_transform = [1,2] is not supported"},
		{`{"peft_type": "IA3"}`, `peft_type = "IA3", want LORA`},
		{`{"target_modules": []}`, "target_modules is empty"},
		{`{"target_modules": 3}`, "target_modules = 3, want names or a pattern"},
		{`{"r": 0}`, "r = 0, want at least 1"},
		{`{"lora_dropout": 1}`, "lora_dropout = 1, want a number in [0, 1)"},
	} {
		config := tc.config
		if !strings.Contains(config, "target_modules") {
			config = strings.Replace(config, "{", `{"target_modules": ["q_proj"], `, 1)
		}
		if _, err := ParseConfig([]byte(config)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", config, err, tc.want)
		}
	}
}

// TestRead reads one of PEFT's folders and names what does not fit the model.
func TestRead(t *testing.T) {
	path := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "adapters", "mid", "adapter_config.json"))
	a, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Tensors) != 32 || a.Config.Rank != 8 || a.Config.Alpha != 32 ||
		!slices.Equal(a.Config.Targets, []string{"q_proj", "k_proj", "v_proj", "o_proj"}) {
		t.Fatalf("read %d matrices, %+v", len(a.Tensors), a.Config)
	}
	modules := func(rank, in int, n int) (out []Module) {
		for i := range n {
			for _, p := range "qkvo" {
				width := map[rune]int{'q': 64, 'k': 32, 'v': 32, 'o': 64}[p]
				out = append(out, Module{Name: fmt.Sprintf("model.layers.%d.self_attn.%c_proj", i, p), In: in, Out: width, Rank: rank})
			}
		}
		return out
	}
	if err := a.Check(modules(8, 64, 4)); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct {
		modules []Module
		want    string
	}{
		{modules(8, 64, 5), "tensor base_model.model.model.layers.4.self_attn.q_proj.lora_A.weight is missing"},
		{modules(8, 64, 3), "unexpected tensor base_model.model.model.layers.3.self_attn.k_proj.lora_A.weight"},
		{modules(4, 64, 4), "has shape [8 64], want [4 64]"},
		{modules(8, 32, 4), "has shape [8 64], want [8 32]"},
	} {
		if err := a.Check(tc.modules); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
	}
}

func TestReadNamesStrayTensors(t *testing.T) {
	path := t.TempDir()
	weights := []tensorfile.Tensor{tensorfile.FromFloat32s("base_model.model.lm_head.weight", []int{1}, []float32{1})}
	if err := Write(path, DefaultOptions().Config(), weights); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "unexpected tensor base_model.model.lm_head.weight") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(path, configName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "not an adapter folder") {
		t.Errorf("got %v", err)
	}
}

// TestInitA: Kaiming uniform with a = √5 is uniform in ±1/√in; it depends on seed and name.
func TestInitA(t *testing.T) {
	m := Module{Name: "model.layers.0.self_attn.q_proj", In: 256, Out: 8, Rank: 64}
	values := InitA(m, 1)
	sum, squares, largest := 0.0, 0.0, 0.0
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
		largest = math.Max(largest, math.Abs(float64(v)))
	}
	n, bound := float64(len(values)), 1.0/16
	if largest > bound || largest < 0.99*bound || math.Abs(sum/n) > 5*bound/math.Sqrt(3*n) || math.Abs(squares/n/(bound*bound/3)-1) > 0.05 {
		t.Errorf("mean %g, variance %g, largest %g: want uniform in ±%g", sum/n, squares/n, largest, bound)
	}
	m.Name = "model.layers.1.self_attn.q_proj"
	if slices.Equal(values, InitA(m, 1)) {
		t.Error("two modules start alike")
	}
	m.Name = "model.layers.0.self_attn.q_proj"
	if !slices.Equal(values, InitA(m, 1)) || slices.Equal(values, InitA(m, 2)) {
		t.Error("the start does not depend on the seed alone")
	}
}

// TestPublic: what is written for PEFT selects the same by the public names alone; what does already stays as it is.
func TestPublic(t *testing.T) {
	for config, plain := range map[string]bool{
		`{"target_modules": ["q_proj", "gate_proj"], "rank_pattern": {"layers.1.self_attn.q_proj": 2}}`: true,
		`{"target_modules": ["model.layers.0.self_attn.q_proj", "visual.blocks.0.mlp.gate_proj"]}`:      false,
		`{"target_modules": "model\\.layers\\.\\d\\.self_attn.*", "alpha_pattern": {"1.self_attn.q_proj": 2}, "rank_pattern": {
			"model.layers.0.self_attn.q_proj": 2}}`: false,
		`{"target_modules": ["q_proj"], "alpha_pattern": {"model.layers.1.self_attn.q_proj": 2}}`: false,
	} {
		c, err := ParseConfig([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.Select(layers())
		if err != nil {
			t.Fatal(err)
		}
		modules, public := map[string]Module{}, layers()
		for i := range public {
			public[i].Name = public[i].Public
		}
		for i, m := range want {
			modules[m.Name] = m
			want[i].Name = m.Public
		}
		written, err := c.public(modules)
		if err != nil {
			t.Fatal(err)
		}
		got, err := written.Select(public)
		if err != nil || !slices.Equal(got, want) || plain != slices.Equal(written.Targets, c.Targets) {
			t.Errorf("%s\nis written as %+v, which selects %+v (%v), want %+v", config, written, got, err, want)
		}
	}
}
