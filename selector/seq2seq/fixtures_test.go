package seq2seq

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		panic(err)
	}
	torchx.Attach(1)
	os.Exit(m.Run())
}

// models are the fixtures' random models.
func models() []string { return []string{"tiny_t5", "tiny_t5_v11", "tiny_bart"} }

// fixture opens one file of expected arrays.
func fixture(t *testing.T, name string) *tensorfile.File {
	t.Helper()
	f, err := tensorfile.ReadSafetensors(golden.Shared(t, "seq2seq", "fixtures", name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// floats returns an expected array and its shape.
func floats(t *testing.T, f *tensorfile.File, name string) ([]float64, []int) {
	t.Helper()
	x, ok := f.Get(name)
	if !ok {
		t.Fatalf("the fixture has no array %s", name)
	}
	v, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v, x.Shape
}

// ints returns the rows of an expected array of ids [N, width].
func ints(t *testing.T, f *tensorfile.File, name string) [][]int64 {
	t.Helper()
	x, ok := f.Get(name)
	if !ok {
		t.Fatalf("the fixture has no array %s", name)
	}
	v, err := x.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	width := x.Shape[len(x.Shape)-1]
	var rows [][]int64
	for ; len(v) > 0; v = v[width:] {
		rows = append(rows, v[:width:width])
	}
	return rows
}

// unpadded are the rows of input_ids up to their masks' ends.
func unpadded(t *testing.T, f *tensorfile.File) [][]int64 {
	t.Helper()
	all, mask := ints(t, f, "input_ids"), ints(t, f, "attention_mask")
	for i, ids := range all {
		n := 0
		for _, m := range mask[i] {
			n += int(m)
		}
		all[i] = ids[:n]
	}
	return all
}

// expected is what of expected.json the tests of a model read.
type expected struct {
	Forward struct {
		Loss     float64
		Sequence []float64 `json:"sequence_logps"`
	}
	Generation struct {
		Ignored  generationCase `json:"greedy_ignore_eos"`
		Stop     generationCase `json:"stop_at_token"`
		RealEOS  generationCase `json:"greedy_real_eos"`
		Forced   generationCase `json:"forced_bos_eos"`
		Sampling struct {
			Row      int
			Decoder  []int64 `json:"decoder_input_ids"`
			Settings []struct {
				Temperature float64
				TopK        *int    `json:"top_k"`
				TopP        float64 `json:"top_p"`
				Kept        int
			} `json:"cases"`
		}
	}
	GRPO grpoCase
}

type generationCase struct {
	IDs       [][]int64
	EOS       int64 `json:"eos_token_id"`
	MaxLength int   `json:"max_length"`
	Pad       int64 `json:"pad_token_id"`
}

func expectations(t *testing.T, model string) *expected {
	t.Helper()
	var all map[string]any
	path := golden.Shared(t, "seq2seq", "expected.json")
	golden.JSON(t, path, &all)
	if all[model] == nil {
		t.Fatalf("%s has no model %s", path, model)
	}
	var e struct {
		T5   expected `json:"tiny_t5"`
		V11  expected `json:"tiny_t5_v11"`
		BART expected `json:"tiny_bart"`
	}
	golden.JSON(t, path, &e)
	return map[string]*expected{"tiny_t5": &e.T5, "tiny_t5_v11": &e.V11, "tiny_bart": &e.BART}[model]
}

// openTiny opens one of the fixtures' models in float32 with nothing trained. change, which may be nil, changes the
// options.
func openTiny(t testing.TB, name string, change func(*Options)) *Model {
	t.Helper()
	path := filepath.Dir(golden.Shared(t, "seq2seq", name, "config.json"))
	opt := DefaultOptions()
	opt.Path, opt.DType, opt.LoRA.Enabled = &path, "float32", false
	if change != nil {
		change(&opt)
	}
	m, err := Open(opt, "cpu", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// withAdapter opens a model with its adapter of the fixtures.
func withAdapter(t *testing.T, name string) *Model {
	t.Helper()
	path := filepath.Dir(golden.Shared(t, "seq2seq", "adapters", name, "adapter_config.json"))
	return openTiny(t, name, func(o *Options) { o.Adapter = &path })
}

// perturb multiplies parameters as the fixtures' perturbed copies are made (spec §9).
func perturb(m *Model, eps, phase float64) {
	values := m.Params().Values()
	for _, name := range m.Params().Names() {
		lo, hi := m.Params().Range(name)
		for i := range hi - lo {
			values[lo+i] = float32(float64(values[lo+i]) * (1 + eps*math.Sin(float64(i)+phase)))
		}
	}
	m.Params().SetValues(values)
}

func narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// each runs a test for every model of the fixtures.
func each(t *testing.T, f func(t *testing.T, model string)) {
	for _, model := range models() {
		t.Run(model, func(t *testing.T) { f(t, model) })
	}
}

func name(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }
