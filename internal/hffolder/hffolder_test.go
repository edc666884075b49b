package hffolder

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
)

func weights(n int) []tensorfile.Tensor {
	var out []tensorfile.Tensor
	for i := range n {
		out = append(out, tensorfile.FromFloat32s(fmt.Sprintf("model.layers.%d.weight", i), []int{2, 2}, []float32{float32(i), 1, 2, 3}))
	}
	return out
}

// TestWriteAndOpen: one file or shards of at most the given size, in order; the layout written last is the one that is read.
func TestWriteAndOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model")
	for _, tc := range []struct {
		shardBytes int
		want       string // files beside config.json
	}{
		{0, "model.safetensors"},
		// two tensors of 16 bytes each
		{40, "model-00001-of-00003.safetensors model-00002-of-00003.safetensors model-00003-of-00003.safetensors " +
			"model.safetensors.index.json"},
		{0, "model.safetensors"},
	} {
		if err := Write(path, []byte(`{"a": 1}`), nil, weights(5), tc.shardBytes); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(f.Config) != `{"a": 1}` || f.Generation != nil || len(f.Names()) != 5 {
			t.Errorf("config %s, generation %s, tensors %v", f.Config, f.Generation, f.Names())
		}
		for i, w := range weights(5) {
			got, ok := f.Tensor(w.Name)
			if !ok || string(got.Data) != string(w.Data) {
				t.Errorf("tensor %d: %v", i, got)
			}
		}
		f.Close()
		if tc.shardBytes == 0 {
			continue
		}
		entries, err := filepath.Glob(filepath.Join(path, "model*"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, filepath.Base(e))
		}
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("files %s, want %s", got, tc.want)
		}
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	path := t.TempDir()
	open := func() error {
		f, err := Open(path)
		if err == nil {
			f.Close()
		}
		return err
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "not a model folder") {
		t.Errorf("without config.json: %v", err)
	}
	if err := os.WriteFile(filepath.Join(path, "config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "found neither model.safetensors nor model.safetensors.index.json") {
		t.Errorf("without weights: %v", err)
	}
	if err := os.WriteFile(filepath.Join(path, "model.safetensors.index.json"), []byte(`{"weight_map": {}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "want weight_map") {
		t.Errorf("with an empty index: %v", err)
	}
}

func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"model.language_model.layers.0.mlp.up_proj.weight": "model.layers.0.mlp.up_proj.weight",
		"model.visual.merger.ln_q.weight":                  "visual.merger.ln_q.weight",
		"model.layers.0.mlp.up_proj.weight":                "model.layers.0.mlp.up_proj.weight",
		"visual.merger.ln_q.weight":                        "visual.merger.ln_q.weight",
		"lm_head.weight":                                   "lm_head.weight",
	} {
		if got := Canonical(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestBothLayoutsTwice: a tensor that is there under both of its names is refused.
func TestBothLayoutsTwice(t *testing.T) {
	path := t.TempDir()
	w := append(weights(1), weights(1)...)
	w[1].Name = "model.language_model.layers.0.weight"
	if err := Write(path, []byte("{}"), nil, w, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("got %v", err)
	}
}

// TestCheckTypes: 8-bit and integer weights are refused by name.
func TestCheckTypes(t *testing.T) {
	path := t.TempDir()
	whole := tensorfile.Tensor{Name: "w", DType: tensorfile.I64, Shape: []int{1}, Data: make([]byte, 8)}
	if err := Write(path, []byte("{}"), nil, []tensorfile.Tensor{whole}, 0); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Check([]Want{{"w", []int{1}}}, nil); err == nil || !strings.Contains(err.Error(),
		"tensor w has type I64, want F32, F16 or BF16") {
		t.Errorf("got %v", err)
	}
	if err := f.Check(nil, func(string) bool { return true }); err != nil {
		t.Errorf("ignored: %v", err)
	}
}

func TestCheckLayers(t *testing.T) {
	f := &Folder{Path: "model", tensors: map[string]stored{"a": {}, "b": {}}}
	if err := f.CheckLayers("num_hidden_layers", 2); err != nil {
		t.Error(err)
	}
	if err := f.CheckLayers("num_hidden_layers", 3); err == nil || err.Error() != "model/config.json: num_hidden_layers = 3, "+
		"but the weights are 2 tensors" {
		t.Error(err)
	}
}

// TestOpenPickle: pytorch_model.bin is read where no safetensors file is; what is no dict of tensors is refused.
func TestOpenPickle(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(`{}`), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "pytorch_model.bin")
	state := &tensorfile.Dict{Keys: []any{"model.visual.a"}, Values: []any{weights(1)[0]}}
	if err := tensorfile.WritePT(path, state); err != nil {
		t.Fatal(err)
	}
	f, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, ok := f.Tensor("visual.a"); !ok || !bytes.Equal(got.Data, weights(1)[0].Data) {
		t.Errorf("%v %v, want the bytes that were saved", f.Names(), got.Shape)
	}
	if err := tensorfile.WritePT(path, weights(1)[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "want a dict of tensors") {
		t.Errorf("a tensor alone: %v", err)
	}
}
