package seq2seq

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

// newly copies a fixture model to a folder with the config.json that transformers 5.23 writes for it (scripts/peers/goldens.py).
func newly(t *testing.T, model string, extra ...tensorfile.Tensor) (path string, config []byte) {
	t.Helper()
	path = rewrite(t, model, nil, nil, true, extra...)
	config, err := os.ReadFile("testdata/transformers5/" + model + ".json")
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "config.json"), config, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, config
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

// TestTransformers5Folders: transformers 5 says tie_word_embeddings = true of every T5, also where the head is another
// matrix and reads rows that are not scaled. Such a folder is the model that it was before, and an export of it too.
func TestTransformers5Folders(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		path, _ := newly(t, model)
		gs, _ := forwardCase(t, model)
		was, m := openTiny(t, model, nil), mustOpenAt(t, path)
		golden.Close(t, logitsOf(t, m, gs[0]), logitsOf(t, was, gs[0]), 1e-5) // memory lies elsewhere, so sums round differently
		out := t.TempDir()
		if err := m.SaveMerged(out, ""); err != nil {
			t.Fatal(err)
		}
		golden.Close(t, logitsOf(t, mustOpenAt(t, out), gs[0]), logitsOf(t, was, gs[0]), 1e-5)
		if own, config := !m.cfg.Tied, readFile(t, filepath.Join(out, "config.json")); own != strings.Contains(config, `"tie_word_embeddings": false`) {
			t.Errorf("own head: %v, but config.json is %s", own, config)
		}
	})
	table := openTiny(t, "tiny_bart", nil)
	values := make([]float32, table.cfg.Vocab*table.cfg.Width)
	path, _ := newly(t, "tiny_bart", tensorfile.FromFloat32s("lm_head.weight", []int{table.cfg.Vocab, table.cfg.Width}, values))
	if _, err := openAt(path); err == nil || !strings.Contains(err.Error(), "want BART's head to be its embedding") {
		t.Errorf("a BART with a head of its own: %v", err)
	}
}

// TestExportKeepsFloats: transformers 5 refuses a config.json whose floats have lost their decimal point.
func TestExportKeepsFloats(t *testing.T) {
	numbers := func(raw string) map[string]any {
		read, all := json.NewDecoder(strings.NewReader(raw)), map[string]any{}
		read.UseNumber()
		if err := read.Decode(&all); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"torch_dtype", "tie_word_embeddings"} { // written anew
			delete(all, key)
		}
		return all
	}
	each(t, func(t *testing.T, model string) {
		path, config := newly(t, model)
		out := t.TempDir()
		if err := mustOpenAt(t, path).SaveMerged(out, "float32"); err != nil {
			t.Fatal(err)
		}
		got, want := numbers(readFile(t, filepath.Join(out, "config.json"))), numbers(string(config))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("config.json is %v, want %v", got, want)
		}
	})
	eachScratch(t, func(t *testing.T, model string) {
		out := t.TempDir()
		if err := scratch(t, model, nil).SaveMerged(out, "float32"); err != nil {
			t.Fatal(err)
		}
		config := numbers(readFile(t, filepath.Join(out, "config.json")))
		for _, key := range []string{"dropout_rate", "initializer_factor", "dropout", "attention_dropout", "activation_dropout"} {
			if value, ok := config[key]; ok && !strings.Contains(value.(json.Number).String(), ".") {
				t.Errorf("%s is %v, want a decimal point", key, value)
			}
		}
	})
}
