package vl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

// TestTransformers5Types: transformers 5 goes by the type at the top of config.json, and may leave another one in
// text_config (scripts/peers/goldens.py). An export names one type only.
func TestTransformers5Types(t *testing.T) {
	config, err := os.ReadFile("testdata/transformers5/tiny_tied.json")
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err := ParseConfig(config); err != nil || cfg.DType != "bfloat16" {
		t.Fatalf("type %q, %v", cfg.DType, err)
	}
	path, out := rewrite(t, "tiny_tied", nil, nil, 0), t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := mustOpenAt(t, path).SaveMerged(out, ""); err != nil {
		t.Fatal(err)
	}
	var got struct {
		DType    string `json:"dtype"`
		OldDType string `json:"torch_dtype"`
		Text     struct {
			DType string `json:"dtype"`
		} `json:"text_config"`
	}
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(out, "config.json"))), &got); err != nil {
		t.Fatal(err)
	}
	if got.DType != "bfloat16" || got.OldDType != "bfloat16" || got.Text.DType != "bfloat16" {
		t.Errorf("types %+v, want bfloat16", got)
	}
}

// TestTiedFolderWithAHead: config.json says tied, but the folder holds another head. As in transformers, that is the head.
func TestTiedFolderWithAHead(t *testing.T) {
	ask := prompt(t, "one_image")
	tied := openTiny(t, "tiny_tied", nil)
	values := make([]float32, tied.cfg.Vocab*tied.cfg.Hidden)
	for i := range values {
		values[i] = float32(i%7) / 10
	}
	path := rewrite(t, "tiny_tied", nil, nil, 0, tensorfile.FromFloat32s("lm_head.weight", []int{tied.cfg.Vocab, tied.cfg.Hidden}, values))
	untied := rewrite(t, "tiny_tied", func(c map[string]any) { c["tie_word_embeddings"] = false }, nil, 0,
		tensorfile.FromFloat32s("lm_head.weight", []int{tied.cfg.Vocab, tied.cfg.Hidden}, values))
	want := promptLogits(t, mustOpenAt(t, untied), ask)
	m, out := mustOpenAt(t, path), t.TempDir()
	golden.Close(t, promptLogits(t, m, ask), want, 1e-5)
	if err := m.SaveMerged(out, ""); err != nil {
		t.Fatal(err)
	}
	golden.Close(t, promptLogits(t, mustOpenAt(t, out), ask), want, 1e-5)
	folder, err := hffolder.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if !strings.Contains(string(folder.Config), `"tie_word_embeddings": false`) || !folder.Differ("lm_head.weight", "model.embed_tokens.weight") {
		t.Errorf("config.json: %s", folder.Config)
	}
}
