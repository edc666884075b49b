package seq2seq

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// rewrite copies a fixture model to a new folder: edit changes config.json, names says what each tensor is called there
// (none drops it), extra is added. generation keeps generation_config.json.
func rewrite(t *testing.T, model string, edit func(config map[string]any), names func(string) []string, generation bool,
	extra ...tensorfile.Tensor) string {
	t.Helper()
	from, err := hffolder.Open(filepath.Dir(golden.Shared(t, "seq2seq", model, "config.json")))
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
		as := []string{name}
		if names != nil {
			as = names(name)
		}
		for _, w.Name = range as {
			weights = append(weights, w)
		}
	}
	said := from.Generation
	if !generation {
		said = nil
	}
	path := t.TempDir()
	if err := hffolder.Write(path, raw, said, append(weights, extra...), 0); err != nil {
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

// TestNames: folders whose tensors have the other names of the published ones hold the same model.
func TestNames(t *testing.T) {
	bare := func(name string) string { return strings.TrimPrefix(name, "model.") }
	for _, tc := range []struct {
		name, model string
		names       func(string) []string
	}{
		{"BART from the bare model", "tiny_bart", func(n string) []string { return []string{bare(n)} }},
		{"only the decoder's copy of the table", "tiny_bart", func(n string) []string {
			return []string{strings.Replace(n, "model.shared.weight", "model.decoder.embed_tokens.weight", 1)}
		}},
		{"only the head's copy", "tiny_bart", func(n string) []string {
			return []string{strings.Replace(n, "model.shared.weight", "lm_head.weight", 1)}
		}},
		{"bare, only the encoder's copy", "tiny_bart", func(n string) []string {
			return []string{strings.Replace(bare(n), "shared.weight", "encoder.embed_tokens.weight", 1)}
		}},
		{"all copies", "tiny_bart", func(n string) []string {
			if n != "model.shared.weight" {
				return []string{n}
			}
			return []string{n, "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"}
		}},
		{"T5 with all copies", "tiny_t5", func(n string) []string {
			if n != "shared.weight" {
				return []string{n}
			}
			return []string{n, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}
		}},
		{"T5 without the stray table", "tiny_t5", func(n string) []string {
			if strings.HasSuffix(n, "EncDecAttention.relative_attention_bias.weight") {
				return nil
			}
			return []string{n}
		}},
		{"T5 v1.1 with the encoder's copy alone", "tiny_t5_v11", func(n string) []string {
			return []string{strings.Replace(n, "shared.weight", "encoder.embed_tokens.weight", 1)}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := openAt(rewrite(t, tc.model, nil, tc.names, true))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free()
			gs, _ := forwardCase(t, tc.model)
			golden.Close(t, logitsOf(t, m, gs[2]), logitsOf(t, openTiny(t, tc.model, nil), gs[2]), 1e-5)
		})
	}
}

// TestFinalBias: BART without final_logits_bias adds nothing to its logits.
func TestFinalBias(t *testing.T) {
	m, err := openAt(rewrite(t, "tiny_bart", nil, func(n string) []string {
		if n == finalBias {
			return nil
		}
		return []string{n}
	}, true))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	gs, _ := forwardCase(t, "tiny_bart")
	with := openTiny(t, "tiny_bart", nil)
	bias := with.HeadBias.Floats()
	want := logitsOf(t, with, gs[2])
	for i := range want {
		want[i] -= bias[i%len(bias)]
	}
	golden.Close(t, logitsOf(t, m, gs[2]), want, 1e-5)
	// Without the constant log-probabilities come from the fused head, with it from all logits: both agree.
	both := func(m *Model) (fused, whole []float64) {
		lp, err := m.LogProbs(gs[2:])
		if err != nil {
			t.Fatal(err)
		}
		defer torchx.Scope()()
		ids := gs[2].Completions[0]
		z := torchx.LogSoftmax(torchx.From(narrow(logitsOf(t, m, gs[2])), len(ids), m.cfg.Vocab), 1)
		return lp[0][0], torchx.Gather(z, 1, torchx.From(ids, len(ids), 1)).Floats()
	}
	for _, m := range []*Model{m, with} {
		a, b := both(m)
		golden.Close(t, a, b, 1e-5)
	}
}

// TestSwitches: keys of config.json that change the arithmetic do change it, and defaults stand for absent ones.
func TestSwitches(t *testing.T) {
	logits := func(model string, edit func(map[string]any)) []float64 {
		m, err := openAt(rewrite(t, model, edit, nil, true))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		gs, _ := forwardCase(t, model)
		return logitsOf(t, m, gs[2])
	}
	for _, tc := range []struct {
		model, key string
		value      any // nil: absent
		same       bool
	}{
		{"tiny_bart", "scale_embedding", true, false},
		{"tiny_bart", "activation_function", "relu", false},
		{"tiny_bart", "activation_function", "gelu_new", false},
		{"tiny_bart", "activation_function", nil, true},
		{"tiny_t5", "layer_norm_epsilon", 0.1, false},
		{"tiny_t5", "layer_norm_epsilon", nil, true},
		{"tiny_t5", "relative_attention_max_distance", 20, false},
		{"tiny_t5", "relative_attention_max_distance", nil, true},
		{"tiny_t5", "feed_forward_proj", nil, true}, // relu, as in the first T5 configs
		{"tiny_t5", "feed_forward_proj", "gelu", false},
		{"tiny_t5", "tie_word_embeddings", nil, true},
		{"tiny_t5_v11", "feed_forward_proj", "gated-silu", false},
		{"tiny_t5_v11", "feed_forward_proj", "gated-relu", false},
	} {
		t.Run(name("%s %s=%v", tc.model, tc.key, tc.value), func(t *testing.T) {
			want := logits(tc.model, nil)
			got := logits(tc.model, func(c map[string]any) {
				if delete(c, tc.key); tc.value != nil {
					c[tc.key] = tc.value
				}
				if tc.key == "feed_forward_proj" && tc.value != nil { // what follows from it
					delete(c, "dense_act_fn")
				}
			})
			far := 0.0
			for i := range got {
				far = max(far, got[i]-want[i])
			}
			if same := far < 1e-5; same != tc.same {
				t.Errorf("logits differ by up to %g", far)
			}
		})
	}
}

// TestGenerationKeys: generation_config.json has the last word, config.json without it, old keys and lists are read, and
// what is not done here is told.
func TestGenerationKeys(t *testing.T) {
	open := func(edit func(map[string]any), keep bool) GenerationConfig {
		m, err := openAt(rewrite(t, "tiny_bart", edit, nil, keep))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		return m.Generation()
	}
	g := open(func(c map[string]any) { delete(c, "forced_bos_token_id"); c["eos_token_id"] = 7 }, true)
	if !slices.Equal(g.EOS, []int64{2}) || !slices.Equal(g.ForcedBOS, []int64{0}) || !slices.Equal(g.ForcedEOS, []int64{2}) ||
		g.Start != 2 || g.Pad != 1 {
		t.Errorf("with generation_config.json: %+v", g)
	}
	g = open(func(c map[string]any) {
		c["forced_bos_token_id"] = nil
		c["force_bos_token_to_be_generated"], c["eos_token_id"] = true, []int{2, 7}
		c["num_beams"], c["no_repeat_ngram_size"], c["min_length"], c["max_length"] = 4, 3, 56, 142
	}, false)
	if !slices.Equal(g.EOS, []int64{2, 7}) || !slices.Equal(g.ForcedBOS, []int64{0}) {
		t.Errorf("without: %+v", g)
	}
	if want := []string{"min_length=56", "no_repeat_ngram_size=3", "num_beams=4"}; !slices.Equal(g.Asked(), want) {
		t.Errorf("asked: %v, want %v", g.Asked(), want)
	}
}

// TestFoldersThatDoNotFit names the tensor or key.
func TestFoldersThatDoNotFit(t *testing.T) {
	stray := tensorfile.FromFloat32s("decoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight", []int{1}, []float32{1})
	for _, tc := range []struct {
		name, model string
		edit        func(map[string]any)
		drop        string
		extra       []tensorfile.Tensor
		want        string
	}{
		{"a missing tensor", "tiny_t5", nil, "encoder.block.2.layer.1.DenseReluDense.wo.weight", nil,
			"1 missing (encoder.block.2.layer.1.DenseReluDense.wo.weight)"},
		{"no table at all", "tiny_bart", nil, "model.shared.weight", nil, "1 missing (model.shared.weight)"},
		{"an unexpected tensor", "tiny_t5", nil, "", []tensorfile.Tensor{stray},
			"1 unexpected (decoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight)"},
		{"a head where the model is tied to none", "tiny_t5_v11", nil, "lm_head.weight", nil, "1 missing (lm_head.weight)"},
		{"a size that the weights do not have", "tiny_t5", func(c map[string]any) { c["d_ff"] = 80 }, "", nil,
			"has shape [96 48], want [80 48] (from config.json)"},
		{"fewer layers", "tiny_bart", func(c map[string]any) { c["decoder_layers"] = 1 }, "", nil,
			"26 unexpected (model.decoder.layers.1."},
		{"an unknown architecture", "tiny_t5", func(c map[string]any) { c["architectures"] = []string{"MT5ForConditionalGeneration"} },
			"", nil, `architecture "MT5ForConditionalGeneration" is not supported: want LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, ` +
				"Qwen2VLForConditionalGeneration, Qwen2_5_VLForConditionalGeneration, Qwen3ForCausalLM, Qwen3VLForConditionalGeneration, " +
				"SmolLM3ForCausalLM (policy=qwen2_5_vl), or BartForConditionalGeneration, BartModel, T5ForConditionalGeneration, T5Model, " +
				"T5WithLMHeadModel (policy=seq2seq)"},
		{"an unknown model type", "tiny_t5", func(c map[string]any) { delete(c, "architectures"); c["model_type"] = "mbart" }, "", nil,
			`model_type "mbart" is not supported: want `},
		{"an unknown activation", "tiny_t5", func(c map[string]any) { c["feed_forward_proj"] = "gated-mish" }, "", nil,
			`unknown feed_forward_proj "mish"`},
		{"an activation that contradicts", "tiny_t5", func(c map[string]any) { c["dense_act_fn"] = "gelu" }, "", nil,
			`dense_act_fn = "gelu" is not supported, want the "relu" of feed_forward_proj = "relu"`},
		{"an alias that contradicts", "tiny_bart", func(c map[string]any) { c["num_hidden_layers"] = 7 }, "", nil,
			"num_hidden_layers = 7 is not supported, want it equal to encoder_layers"},
		{"no encoder-decoder", "tiny_t5", func(c map[string]any) { c["is_encoder_decoder"] = false }, "", nil,
			"is_encoder_decoder = false is not supported, want true"},
		{"heads that do not divide", "tiny_bart", func(c map[string]any) { c["decoder_attention_heads"] = 5 }, "", nil,
			"d_model = 48 is no multiple of decoder_attention_heads = 5"},
		{"a relative's switch", "tiny_bart", func(c map[string]any) { c["normalize_before"] = true }, "", nil,
			"normalize_before = true is not supported, want false"},
		{"an untied BART", "tiny_bart", func(c map[string]any) { c["tie_word_embeddings"] = false }, "", nil,
			"tie_word_embeddings = false is not supported"},
		{"no pad token", "tiny_bart", func(c map[string]any) { c["pad_token_id"] = nil }, "", nil, "pad_token_id is null: want a token's id"},
		{"buckets that cannot be halved twice", "tiny_t5", func(c map[string]any) { c["relative_attention_num_buckets"] = 6 }, "", nil,
			"relative_attention_num_buckets = 6, want a multiple of 4"},
		{"a start token outside the vocabulary", "tiny_t5", func(c map[string]any) { c["decoder_start_token_id"] = 9999 }, "", nil,
			"decoder_start_token_id = 9999, want an id below vocab_size = 384"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := rewrite(t, tc.model, tc.edit, func(name string) []string {
				if name == tc.drop {
					return nil
				}
				return []string{name}
			}, true, tc.extra...)
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

// halved is a fixture model whose weights are stored in another type.
func stored(t *testing.T, model, dtype string) string {
	t.Helper()
	path := t.TempDir()
	if err := openTiny(t, model, nil).SaveMerged(path, dtype); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestComputeType: on the CPU float32 is computed in, over bfloat16 matrices as they are in the file, unless bfloat16 is
// asked for; float16 folders are computed in float32, with a word about it.
func TestComputeType(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		gs, _ := forwardCase(t, model)
		var notices []string
		for _, tc := range []struct {
			file, dtype  string
			want, matrix torchx.DType
			tol          float64
		}{
			{"bfloat16", "auto", torchx.Float32, torchx.BFloat16, 0.6}, // the weights were rounded to 8 bits
			{"bfloat16", "bfloat16", torchx.BFloat16, torchx.BFloat16, 1.2},
			{"float16", "auto", torchx.Float32, torchx.Float32, 0.06},
			{"float32", "auto", torchx.Float32, torchx.Float32, 1e-5},
		} {
			path := stored(t, model, tc.file)
			opt := DefaultOptions()
			opt.Path, opt.DType = &path, tc.dtype
			m, err := Open(opt, "cpu", 1, func(s string) { notices = append(notices, s) })
			if err != nil {
				t.Fatal(err)
			}
			norm, matrix := "encoder.final_layer_norm.weight", "encoder.block.0.layer.0.SelfAttention.o.weight"
			if m.cfg.Kind == kindBART {
				norm, matrix = "model.encoder.layernorm_embedding.weight", "model.encoder.layers.0.fc1.weight"
			}
			if got := m.Frozen().Tensors[norm].DType(); got != tc.want {
				t.Errorf("%s as %s: vectors are %v, want %v", tc.file, tc.dtype, got, tc.want)
			}
			if got := m.Frozen().Tensors[matrix].DType(); got != tc.matrix {
				t.Errorf("%s as %s: matrices are %v, want %v", tc.file, tc.dtype, got, tc.matrix)
			}
			golden.Close(t, logitsOf(t, m, gs[2]), logitsOf(t, openTiny(t, model, nil), gs[2]), tc.tol)
			how := GenerateOptions{SamplingOptions: DefaultSampling()}
			how.MaxNewTokens = 3
			if out, err := m.Generate([][]int64{gs[2].Prompt, gs[1].Prompt}, 2, how); err != nil || len(out[0]) != 2 {
				t.Errorf("%s as %s: %v", tc.file, tc.dtype, err)
			}
			end := torchx.Scope()
			m.Params().ZeroGrad()
			torchx.Backward(torchx.Sum(NewPolicy(m).Forward(groupBatch(), selector.ForwardOptions{}).LogP))
			if n := m.Params().GradNorm(); !(n > 0) || n-n != 0 {
				t.Errorf("%s as %s: gradient norm %v", tc.file, tc.dtype, n)
			}
			end()
			m.Free()
		}
		if len(notices) != 1 || !strings.Contains(notices[0], "float16") {
			t.Errorf("notices %q, want one about float16", notices)
		}
	})
}

// TestExport: a model from random weights comes back from its folder, and BART's config says what the weights are.
func TestExport(t *testing.T) {
	group := Group{Prompt: []int64{9, 8, 7, 1}, Completions: [][]int64{{10, 11, 12}}}
	eachScratch(t, func(t *testing.T, model string) {
		s, path := scratch(t, model, nil), t.TempDir()
		if err := s.SaveMerged(path, "float32"); err != nil {
			t.Fatal(err)
		}
		m, err := openAt(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		golden.Close(t, logitsOf(t, m, group), logitsOf(t, s, group), 1e-5) // memory lies elsewhere, so sums round differently
		if !slices.Equal(m.EOS(), s.EOS()) || !slices.Equal(m.generation.ForcedBOS, s.generation.ForcedBOS) {
			t.Errorf("generation %+v, want %+v", m.generation, s.generation)
		}
	})
	bare, err := openAt(rewrite(t, "tiny_bart", func(c map[string]any) { c["architectures"] = []string{"BartModel"} },
		func(n string) []string { return []string{strings.TrimPrefix(n, "model.")} }, true))
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Free()
	path := t.TempDir()
	if err := bare.SaveMerged(path, ""); err != nil {
		t.Fatal(err)
	}
	if config := readFile(t, filepath.Join(path, "config.json")); !strings.Contains(config, "BartForConditionalGeneration") {
		t.Errorf("config.json: %s", config)
	}
	gs, _ := forwardCase(t, "tiny_bart")
	again, err := openAt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Free()
	golden.Close(t, logitsOf(t, again, gs[0]), logitsOf(t, bare, gs[0]), 1e-5)
}

// TestTargets: adapters go on queries and values unless other modules are named.
func TestTargets(t *testing.T) {
	for _, tc := range []struct {
		model   string
		targets []string
		want    int
	}{
		{"tiny_t5", nil, 14}, {"tiny_bart", nil, 14}, {"tiny_t5", []string{"EncDecAttention.o"}, 2},
		{"tiny_bart", []string{"fc1", "encoder_attn.k_proj"}, 7},
	} {
		m := openTiny(t, tc.model, func(o *Options) { o.LoRA.Enabled, o.LoRA.TargetModules = true, tc.targets })
		if got := m.Params().Names(); len(got) != 2*tc.want { // A and B of each
			t.Errorf("%s %v: trained %v, want %d modules", tc.model, tc.targets, got, tc.want)
		}
	}
	opt := openTiny(t, "tiny_bart", nil).opt
	opt.LoRA.Enabled, opt.LoRA.TargetModules = true, []string{"q_porj"}
	if _, err := Open(opt, "cpu", 1, nil); err == nil || !strings.Contains(err.Error(),
		`unknown target module "q_porj" (did you mean q_proj?)`) {
		t.Errorf("got %v", err)
	}
}

// TestOptionsThatMeanNothing names the key.
func TestOptionsThatMeanNothing(t *testing.T) {
	o := DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	o.Adapter, o.Scratch.Heads, o.Generation.Kernel = new(string), 5, "fast"
	err := o.Validate()
	for _, want := range []string{"adapter: want path", "scratch.d_model: want a multiple of num_heads=5, got 64",
		"generation.kernel: want exact"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// FuzzParseConfig: whatever config.json holds, sizes that are accepted can be computed with.
func FuzzParseConfig(f *testing.F) {
	for _, model := range architecturesFromScratch() {
		raw, err := ScratchOptions{Model: model, Width: 16, FF: 24, Layers: 2, DecoderLayers: 2, Heads: 2,
			Positions: 48}.configJSON(vocabulary())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"model_type": "t5", "eos_token_id": null, "pad_token_id": null}`))
	f.Add([]byte(`{"architectures": ["BartModel"], "forced_eos_token_id": [1, 2], "d_model": 7}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw)
		if err != nil {
			return
		}
		if min(c.Encoder.Inner(), c.Decoder.Inner(), c.Vocab, c.Encoder.Layers, c.Decoder.Layers) < 1 {
			t.Errorf("accepted %+v", c)
		}
		if c.Kind == kindT5 {
			for _, r := range []int{-1 << 40, -200, -1, 0, 1, 200, 1 << 40} {
				for _, both := range []bool{false, true} {
					if b := bucket(r, both, c.Buckets, c.MaxDistance); b < 0 || b >= c.Buckets {
						t.Errorf("%+v: distance %d in bucket %d", c, r, b)
					}
				}
			}
		} else if c.Encoder.Inner() != c.Width || c.Decoder.Inner() != c.Width {
			t.Errorf("accepted %+v", c)
		}
	})
}
