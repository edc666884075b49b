package vl

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// rewrite copies a fixture model to a new folder: edit changes config.json, rename the tensors' names ("" drops one), extra is
// added.
func rewrite(t *testing.T, model string, edit func(config map[string]any), rename func(string) string, shardBytes int,
	extra ...tensorfile.Tensor) string {
	t.Helper()
	from, err := hffolder.Open(filepath.Dir(golden.Shared(t, "qwen2_5_vl", model, "config.json")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	config := map[string]any{}
	if err := json.Unmarshal(from.Config, &config); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(config)
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	var weights []tensorfile.Tensor
	for _, name := range from.Names() {
		w, _ := from.Tensor(name)
		if rename != nil {
			w.Name = rename(name)
		}
		if w.Name != "" {
			weights = append(weights, w)
		}
	}
	path := t.TempDir()
	if err := hffolder.Write(path, raw, from.Generation, append(weights, extra...), shardBytes); err != nil {
		t.Fatal(err)
	}
	return path
}

// openAt opens a folder in float32 without adapters.
func openAt(path string) (*Model, error) {
	opt := DefaultOptions()
	opt.Path, opt.DType, opt.LoRA.Enabled = &path, "float32", false
	return Open(opt, "cpu", 1, nil)
}

func mustOpenAt(t *testing.T, path string) *Model {
	t.Helper()
	m, err := openAt(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// newer is the name under which transformers 4.52 and later save a tensor.
func newer(name string) string {
	if rest, ok := strings.CutPrefix(name, "model."); ok {
		return "model.language_model." + rest
	}
	if strings.HasPrefix(name, "visual.") {
		return "model." + name
	}
	return name
}

// TestNewerLayout: folders re-saved by transformers 4.52 and later, in shards, with the text keys in text_config, hold the
// same model; so does an adapter saved there.
func TestNewerLayout(t *testing.T) {
	path := rewrite(t, "tiny_tied", func(c map[string]any) {
		text := map[string]any{}
		for _, key := range []string{"hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers",
			"intermediate_size", "vocab_size", "rope_theta", "rope_scaling", "rms_norm_eps", "torch_dtype"} {
			text[key] = c[key]
			delete(c, key)
		}
		c["text_config"] = text
	}, newer, 300_000)
	shards, err := filepath.Glob(filepath.Join(path, "model-0*.safetensors"))
	if err != nil || len(shards) < 3 {
		t.Fatalf("%d shards (%v), want several", len(shards), err)
	}
	ask := prompt(t, "image_and_video")
	golden.Close(t, promptLogits(t, mustOpenAt(t, path), ask), promptLogits(t, openTiny(t, "tiny_tied", nil), ask), 0)

	old := withAdapter(t, "mid")
	adapter := t.TempDir()
	var weights []tensorfile.Tensor
	for _, name := range old.Params().Names() {
		values := old.Params().Get(name).Floats()
		module, _ := strings.CutPrefix(name, "base_model.model.")
		weights = append(weights, tensorfile.FromFloat32s("base_model.model."+newer(module), old.Params().Shape(name), narrow(values)))
	}
	if err := lora.Write(adapter, *old.Adapted(), weights); err != nil {
		t.Fatal(err)
	}
	m := openTiny(t, "tiny_tied", func(o *Options) { o.Path, o.Adapter = &path, &adapter })
	golden.Close(t, promptLogits(t, m, ask), promptLogits(t, old, ask), 0)
}

// TestTextOnlyFolder: a Qwen2 model is the decoder alone, with plain rotary positions; pictures are refused.
func TestTextOnlyFolder(t *testing.T) {
	path := rewrite(t, "tiny_tied", func(c map[string]any) {
		c["architectures"], c["model_type"] = []string{"Qwen2ForCausalLM"}, "qwen2"
		for _, key := range []string{"vision_config", "rope_scaling", "image_token_id", "video_token_id"} {
			delete(c, key)
		}
	}, func(name string) string {
		if strings.HasPrefix(name, "visual.") {
			return ""
		}
		return name
	}, 0)
	m := mustOpenAt(t, path)
	want, _ := floats(t, fixture(t, "logits"), "tiny_tied.text.logits")
	golden.Close(t, promptLogits(t, m, prompt(t, "text")), want, 1e-4)
	_, err := m.Generate([]*processor.Prompt{prompt(t, "one_image")}, 1, greedy())
	if err == nil || !strings.Contains(err.Error(), "the model reads text only") {
		t.Errorf("an image: got %v", err)
	}
	opt := m.opt
	opt.TuneMMVision = true
	if _, err := Open(opt, "cpu", 1, nil); err == nil || !strings.Contains(err.Error(), "vl.tune_mm_vision=true") {
		t.Errorf("tune_mm_vision: got %v", err)
	}
}

// TestMerge: adapters merged into the weights compute the same (spec §9: 2.2e-5), and the adapter folder comes back.
func TestMerge(t *testing.T) {
	m := withAdapter(t, "mid")
	ask := prompt(t, "one_image")
	want := promptLogits(t, m, ask)
	merged, adapter := t.TempDir(), t.TempDir()
	if err := m.SaveMerged(merged, ""); err != nil {
		t.Fatal(err)
	}
	golden.Close(t, promptLogits(t, mustOpenAt(t, merged), ask), want, 1e-4)
	if err := m.SaveAdapter(adapter, "tiny_tied"); err != nil {
		t.Fatal(err)
	}
	again := openTiny(t, "tiny_tied", func(o *Options) { o.Adapter = &adapter })
	golden.Close(t, promptLogits(t, again, ask), want, 0)
	file, err := tensorfile.ReadSafetensors(filepath.Join(adapter, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	whole := openTiny(t, "tiny_tied", func(o *Options) { o.Adapter, o.TuneMMLLM = &adapter, true })
	if err := whole.SaveAdapter(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "llm was trained whole beside them") {
		t.Errorf("adapters of a model that is trained whole, too: %v", err)
	}
	for _, name := range file.Names() { // PEFT skips the published names
		if !strings.HasPrefix(name, "base_model.model.model.language_model.layers.") {
			t.Errorf("the adapter's file calls a tensor %s", name)
		}
	}

	s := scratch(t, nil)
	path := t.TempDir()
	if err := s.SaveMerged(path, "float32"); err != nil {
		t.Fatal(err)
	}
	// memory lies elsewhere, so sums round differently
	golden.Close(t, promptLogits(t, mustOpenAt(t, path), pictured(1)), promptLogits(t, s, pictured(1)), 1e-5)
}

// TestComputeType: on the CPU float32 is computed in, over matrices as they are in the file, unless bfloat16 is asked for.
func TestComputeType(t *testing.T) {
	ask := prompt(t, "two_images")
	want, _ := floats(t, fixture(t, "logits"), "tiny_untied_bf16.two_images.logits")
	var notices []string
	for _, tc := range []struct {
		dtype        string
		want, matrix torchx.DType
		tol          float64
	}{
		{"auto", torchx.Float32, torchx.BFloat16, 1e-4},
		{"bfloat16", torchx.BFloat16, torchx.BFloat16, 0.6}, // bfloat16 has 8 bits; logits reach 15
		{"float16", torchx.Float32, torchx.BFloat16, 1e-4},
	} {
		path := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_untied_bf16", "config.json"))
		opt := DefaultOptions()
		opt.Path, opt.DType = &path, tc.dtype
		m, err := Open(opt, "cpu", 1, func(s string) { notices = append(notices, s) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Free)
		if got := m.Frozen().Tensors["model.norm.weight"].DType(); got != tc.want {
			t.Errorf("dtype=%s: vectors are %v, want %v", tc.dtype, got, tc.want)
		}
		if got := m.Frozen().Tensors["model.layers.0.mlp.up_proj.weight"].DType(); got != tc.matrix {
			t.Errorf("dtype=%s: matrices are %v, want %v", tc.dtype, got, tc.matrix)
		}
		golden.Close(t, promptLogits(t, m, ask), want, tc.tol)
		out, err := m.Generate([]*processor.Prompt{ask}, 2, GenerateOptions{SamplingOptions: tokens.SamplingOptions{MaxNewTokens: 3,
			Temperature: 1}})
		if err != nil || len(out[0]) != 2 {
			t.Errorf("dtype=%s: %v", tc.dtype, err)
		}
		checkTrains(t, m, ask)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "float16") {
		t.Errorf("notices %q, want one about float16", notices)
	}
}

// TestTrainedWeightsStayFloat32: whole parts that are trained while everything is computed in bfloat16 have float32
// values and the gradients of float32, but for bfloat16's rounding.
func TestTrainedWeightsStayFloat32(t *testing.T) {
	run := func(dtype string, checkpointing bool) (names []string, params *torchx.Params, grad []float64) {
		m := openTiny(t, "tiny_untied_bf16", func(o *Options) {
			o.DType, o.TuneMMLLM, o.TuneMMVision, o.TuneMMMLP, o.GradientCheckpointing = dtype, true, true, true, checkpointing
		})
		defer torchx.Scope()()
		m.Params().ZeroGrad()
		torchx.Backward(torchx.Sum(NewPolicy(m).Forward(batchOf(prompt(t, "two_images"), [][]int64{{70, 71}, {72}}),
			selector.ForwardOptions{}).LogP))
		return m.Params().Names(), m.Params(), m.Params().Grad().Floats()
	}
	names, params, want := run("float32", false)
	for _, checkpointing := range []bool{false, true} {
		_, low, got := run("bfloat16", checkpointing)
		if low.Flat().DType() != torchx.Float32 {
			t.Fatalf("trained weights are %v", low.Flat().DType())
		}
		for _, name := range names {
			lo, hi := params.Range(name)
			dot, a, b := 0.0, 0.0, 0.0
			for i := lo; i < hi; i++ {
				dot, a, b = dot+got[i]*want[i], a+got[i]*got[i], b+want[i]*want[i]
			}
			if cosine := dot / math.Sqrt(a*b); !(cosine > 0.98) && b > 1e-6 { // key biases move all scores alike: no gradient
				t.Errorf("%s (checkpointing %v): cosine %.3f to float32's gradient, norms %.3g and %.3g", name, checkpointing, cosine,
					math.Sqrt(a), math.Sqrt(b))
			}
		}
	}
}

// checkTrains takes a step with everything the model trains and looks for finite gradients.
func checkTrains(t *testing.T, m *Model, ask *processor.Prompt) {
	t.Helper()
	defer torchx.Scope()()
	m.Params().ZeroGrad()
	torchx.Backward(torchx.Sum(NewPolicy(m).Forward(batchOf(ask, [][]int64{{70, 71}}), selector.ForwardOptions{}).LogP))
	if norm := m.Params().GradNorm(); !(norm > 0) || norm-norm != 0 {
		t.Errorf("%v: gradient norm %v", m.DType, norm)
	}
}

// TestFoldersThatDoNotFit names the tensor or key.
func TestFoldersThatDoNotFit(t *testing.T) {
	stray := tensorfile.FromFloat32s("model.layers.0.self_attn.q_porj.weight", []int{1}, []float32{1})
	for _, tc := range []struct {
		name  string
		edit  func(map[string]any)
		drop  string
		extra []tensorfile.Tensor
		want  string
	}{
		{"a missing tensor", nil, "model.layers.2.mlp.up_proj.weight", nil, "1 missing (model.layers.2.mlp.up_proj.weight)"},
		{"an unexpected tensor names the nearest missing one", nil, "model.layers.0.self_attn.q_proj.weight", []tensorfile.Tensor{stray},
			"is model.layers.0.self_attn.q_porj.weight meant to be model.layers.0.self_attn.q_proj.weight?"},
		{"a size that the weights do not have", func(c map[string]any) { c["intermediate_size"] = 96 }, "", nil,
			"has shape [128 64], want [96 64] (from config.json)"},
		{"another vocabulary", func(c map[string]any) { c["vocab_size"] = 700 }, "", nil,
			"tensor model.embed_tokens.weight has shape [640 64], want [700 64]"},
		{"an unknown architecture", func(c map[string]any) { c["architectures"] = []string{"Idefics3ForConditionalGeneration"} }, "", nil,
			`architecture "Idefics3ForConditionalGeneration" is not supported: want LlamaForCausalLM, `},
		{"sections that do not sum to half a head", func(c map[string]any) {
			c["rope_scaling"] = map[string]any{"type": "mrope", "mrope_section": []int{2, 3, 4}}
		}, "", nil, "mrope_section = [2 3 4] sums to 9, want half the head size, 8"},
		{"an unknown kind of rotary embedding", func(c map[string]any) { c["rope_scaling"] = map[string]any{"type": "yarn"} }, "", nil,
			`rope_scaling type "yarn" is not supported`},
		{"a missing key", func(c map[string]any) { delete(c, "num_attention_heads") }, "", nil, "num_attention_heads is missing"},
		{"heads that do not divide", func(c map[string]any) { c["num_key_value_heads"] = 3 }, "", nil,
			"num_attention_heads = 4 is no multiple of num_key_value_heads = 3"},
		{"a placeholder outside the vocabulary", func(c map[string]any) { c["image_token_id"] = 9999 }, "", nil,
			"image_token_id = 9999, want an id below vocab_size = 640"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := rewrite(t, "tiny_tied", tc.edit, func(name string) string {
				if name == tc.drop {
					return ""
				}
				return name
			}, 0, tc.extra...)
			m, err := openAt(path)
			if err == nil {
				m.Free()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant …%s", err, tc.want)
			}
		})
	}
}

// TestIndexAndShardsAgree: whatever the index says and a shard does not hold, and the other way round, is named.
func TestIndexAndShardsAgree(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(weights map[string]any)
		want string
	}{
		{"a tensor that the index does not list", func(w map[string]any) { delete(w, "model.norm.weight") },
			"holds tensor model.norm.weight, which model.safetensors.index.json does not place there"},
		{"a tensor that the shard does not hold", func(w map[string]any) { w["model.extra"] = w["model.norm.weight"] },
			"tensor model.extra is missing"},
		{"a shard that is not there", func(w map[string]any) { w["model.norm.weight"] = "model-00009-of-00009.safetensors" },
			"does not place there"},
		{"a shard elsewhere", func(w map[string]any) { w["model.norm.weight"] = "../x.safetensors" }, "want a file of the same folder"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := rewrite(t, "tiny_untied_bf16", nil, nil, 300_000)
			at := filepath.Join(path, "model.safetensors.index.json")
			var index map[string]map[string]any
			golden.JSON(t, at, &index)
			tc.edit(index["weight_map"])
			raw, err := json.Marshal(index)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, raw, 0o644); err != nil {
				t.Fatal(err)
			}
			m, err := openAt(path)
			if err == nil {
				m.Free()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant …%s", err, tc.want)
			}
		})
	}
}

// TestFingerprint: the same weights in other files have the same one; a changed weight another.
func TestFingerprint(t *testing.T) {
	plain := openTiny(t, "tiny_tied", nil)
	if got := mustOpenAt(t, rewrite(t, "tiny_tied", nil, newer, 200_000)).Metadata()["vl.base"]; got != plain.Metadata()["vl.base"] {
		t.Errorf("re-sharded: %s, want %s", got, plain.Metadata()["vl.base"])
	}
	m := withAdapter(t, "mid")
	path := t.TempDir()
	if err := m.SaveMerged(path, ""); err != nil {
		t.Fatal(err)
	}
	if got := mustOpenAt(t, path).Metadata()["vl.base"]; got == plain.Metadata()["vl.base"] {
		t.Error("merged weights have the fingerprint of the base")
	}
}

// TestTargets: names match by their last components, in both towers.
func TestTargets(t *testing.T) {
	names := func(m *Model) []string {
		return slices.DeleteFunc(slices.Clone(m.Params().Names()), func(name string) bool { return !strings.HasSuffix(name, ".lora_A.weight") })
	}
	for _, tc := range []struct {
		targets []string
		want    int
	}{
		{[]string{"q_proj", "v_proj"}, 8},
		{[]string{"gate_proj"}, 8}, // four in the decoder, four in the vision tower, as PEFT has it
		{[]string{"self_attn.q_proj"}, 4},
		{[]string{"qkv", "visual.merger.mlp.0"}, 5},
	} {
		m := openTiny(t, "tiny_tied", func(o *Options) { o.LoRA.Enabled, o.LoRA.TargetModules = true, tc.targets })
		if got := names(m); len(got) != tc.want {
			t.Errorf("%v: adapted %v, want %d modules", tc.targets, got, tc.want)
		}
	}
	opt := openTiny(t, "tiny_tied", nil).opt
	opt.LoRA.Enabled, opt.LoRA.TargetModules = true, []string{"q_porj"}
	if _, err := Open(opt, "cpu", 1, nil); err == nil || !strings.Contains(err.Error(),
		`unknown target module "q_porj" (did you mean q_proj?)`) {
		t.Errorf("got %v", err)
	}
	// adapters in the vision tower: features have a gradient then, and are not remembered
	m := openTiny(t, "tiny_tied", func(o *Options) { o.LoRA.Enabled, o.LoRA.TargetModules = true, []string{"qkv"} })
	checkTrains(t, m, prompt(t, "one_image"))
	if n := len(m.features.Values); n != 0 {
		t.Errorf("%d pictures remembered while their vectors are trained", n)
	}
}

// TestEndsOutsideTheVocabulary: a row of logits has no place for them.
func TestEndsOutsideTheVocabulary(t *testing.T) {
	for _, key := range []string{"eos_token_id", "forced_eos_token_id"} {
		path := rewrite(t, "tiny_tied", nil, nil, 0)
		golden.Write(t, path, map[string]string{"generation_config.json": `{"` + key + `": 99999}`})
		if _, err := openAt(path); err == nil || !strings.Contains(err.Error(), key+" = 99999, want an id below vocab_size = ") {
			t.Errorf("%s: got %v", key, err)
		}
	}
}
