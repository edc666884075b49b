package tasks_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// edited copies a model folder with changes of a JSON file of it; a nil value takes the key away.
func edited(t *testing.T, model, file string, changes map[string]any) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(model))
	if err := os.CopyFS(to, os.DirFS(model)); err != nil {
		t.Fatal(err)
	}
	at, said := filepath.Join(to, file), map[string]any{}
	if raw, err := os.ReadFile(at); err == nil {
		if err := json.Unmarshal(raw, &said); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range changes {
		if said[key] = value; value == nil {
			delete(said, key)
		}
	}
	text, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	write(t, at, string(text))
	return to
}

// TestFoldersThatAskForBeams: a folder as those of bart-large-cnn trains, and says what of its generation_config.json is not done;
// task=generate wants to be told to go on without.
func TestFoldersThatAskForBeams(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	model := edited(t, filepath.Join(root, "tiny_bart"), "generation_config.json", map[string]any{"num_beams": 4, "length_penalty": 2.0,
		"no_repeat_ngram_size": 3, "min_length": 5, "early_stopping": true})
	in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
	write(t, in, `{"id": 1, "source": "the red ball"}`+"\n")
	generate := []string{"policy=seq2seq", "seq2seq.path=" + model, "task=generate", "generate.in=" + in, "generate.out=" + out,
		"generate.max_new_tokens=12", "threads=1"}
	refused(t, run(t, append(generate, "hydra.run.dir="+folder(t))...), 2,
		"the model's generation_config.json asks for num_beams=4, which is not done here: generate.without=[num_beams] generates without")
	refused(t, run(t, append(generate, "generate.without=[num_beam]", "hydra.run.dir="+folder(t))...), 2,
		`unknown key of the model's generation_config.json: "num_beam" (did you mean num_beams?)`)
	mustRun(t, append(generate, "generate.without=[num_beams]", "hydra.run.dir="+folder(t))...)
	ids := readAnswers(t, out)[0].CompletionIDs
	if len(ids) < 4 { // the start token counts
		t.Errorf("%v: shorter than min_length", ids)
	}
	seen := map[[3]int64]bool{}
	for i := 0; i+3 <= len(ids)-1; i++ { // the last token may be forced
		three := [3]int64(ids[i : i+3])
		if seen[three] {
			t.Errorf("%v: %v comes twice", ids, three)
		}
		seen[three] = true
	}
	r := mustRun(t, "exp=summaries_tiny", "seq2seq.path="+model, "dry_run=true", "threads=1", "hydra.run.dir="+folder(t))
	want := "asks for min_length=5, no_repeat_ngram_size=3, num_beams=4: rollouts and validation answers are drawn without"
	if !strings.Contains(r.Stderr, want) {
		t.Errorf("training says %s, want %s", r.Stderr, want)
	}
}

// TestOtherArchitectures: the folder of another model is refused by its architecture, before its tokenizer is opened, with the list of
// those that are read.
func TestOtherArchitectures(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	in := filepath.Join(t.TempDir(), "in.jsonl")
	write(t, in, "{}\n")
	const read = "want LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen2VLForConditionalGeneration, " +
		"Qwen2_5_VLForConditionalGeneration, Qwen3ForCausalLM, Qwen3VLForConditionalGeneration, SmolLM3ForCausalLM " +
		"(policy=qwen2_5_vl), or BartForConditionalGeneration, BartModel, T5ForConditionalGeneration, T5Model, T5WithLMHeadModel (policy=seq2seq)"
	for _, tc := range []struct{ policy, class, want string }{
		{"qwen2_5_vl", "Gemma3ForCausalLM", `architecture "Gemma3ForCausalLM" is not supported: ` + read},
		{"qwen2_5_vl", "OlmoForCausalLM", `architecture "OlmoForCausalLM" is not supported: ` + read},
		{"seq2seq", "MT5ForConditionalGeneration", `architecture "MT5ForConditionalGeneration" is not supported: ` + read},
		{"qwen2_5_vl", "T5ForConditionalGeneration",
			`architecture "T5ForConditionalGeneration" is not read by policy=qwen2_5_vl: policy=seq2seq reads it`},
	} {
		model := edited(t, filepath.Join(root, "tiny_t5"), "config.json",
			map[string]any{"architectures": []string{tc.class}, "eos_token_id": 32000})
		for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} { // as another model has them
			write(t, filepath.Join(model, file), "{}")
		}
		section := map[string]string{"qwen2_5_vl": "vl", "seq2seq": "seq2seq"}[tc.policy]
		got := run(t, "policy="+tc.policy, section+".path="+model, "task=generate", "generate.in="+in, "threads=1",
			"hydra.run.dir="+folder(t))
		refused(t, got, 2, section+".path: "+filepath.Join(model, "config.json")+": "+tc.want)
		if strings.Contains(got.Stderr, "did you mean") {
			t.Errorf("%s: a guess at what another model is: %s", tc.class, got.Stderr)
		}
	}
}

// TestOtherLVLMs: a model in the loop is refused by its architecture too.
func TestOtherLVLMs(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	model := edited(t, filepath.Join(root, "tiny_t5"), "config.json",
		map[string]any{"architectures": []string{"LlavaForConditionalGeneration"}})
	got := run(t, "exp=icl_shapes", "lvlm.path="+model, "threads=1", "hydra.run.dir="+folder(t))
	refused(t, got, 2, "lvlm.path: "+filepath.Join(model, "config.json")+`: architecture "LlavaForConditionalGeneration" is not supported`)
}

// TestInspectModelFolder: `data inspect` says what a model folder is, and what reads it; a folder of an architecture that nothing reads
// too, and a damaged one.
func TestInspectModelFolder(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	t5 := filepath.Join(root, "tiny_t5")
	gemma := edited(t, t5, "config.json", map[string]any{"architectures": []string{"Gemma3ForCausalLM"}})
	folder0, _ := trained(t)
	checkpoint := filepath.Join(folder0, "checkpoints", "rce_epoch1.safetensors")
	cut := edited(t, t5, "config.json", nil)
	write(t, filepath.Join(cut, "model.safetensors"), "")
	for _, tc := range []struct {
		path string
		want []string
	}{
		{t5, []string{t5 + ": model folder", "T5ForConditionalGeneration", "56 tensors, 151584 parameters, F32",
			"policy=seq2seq seq2seq.path=" + t5, "is a model folder and no data"}},
		{filepath.Join(t5, "model.safetensors"), []string{t5 + ": model folder", "policy=seq2seq seq2seq.path=" + t5}},
		{gemma, []string{`nothing here: architecture "Gemma3ForCausalLM" is not supported: want LlamaForCausalLM, `}},
		{checkpoint, []string{checkpoint + ": checkpoint", "policy   pointer", "checkpoint inspect " + checkpoint}},
		{cut, []string{"fault: ", "model.safetensors is empty", "a run would refuse this"}},
	} {
		got := run(t, "data", "inspect", tc.path)
		for _, want := range tc.want {
			if text := got.Stdout + got.Stderr; got.Code != 1 || !strings.Contains(text, want) || strings.Contains(text, "float matrices") {
				t.Errorf("%s: exit code %d, want 1 and %s:\n%s", tc.path, got.Code, want, text)
			}
		}
	}
}
