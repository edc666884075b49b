package clip

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// theirs is what transformers made of the texts and pictures (scripts/peers/clip_goldens.py).
type theirs struct {
	Texts, Pictures []string
	IDs             [][]int64   `json:"ids"`
	Text, Image     [][]float64 // unit rows
	PixelsSum       []float64   `json:"pixels_sum"`
	BFloat16        struct{ Text, Image [][]float64 }
}

// folders are the two kinds: today's (safetensors, tokenizer.json, quick_gelu) and the first (pytorch_model.bin, vocab.json and
// merges.txt, gelu, eos_token_id 2).
func folders() []string { return []string{"quick", "legacy"} }

func load(t *testing.T, name, dtype, device string) (*Encoder, theirs) {
	t.Helper()
	var want theirs
	golden.JSON(t, filepath.Join("testdata", name+".json"), &want)
	if len(want.Texts) < 8 || len(want.Pictures) < 4 {
		t.Fatalf("%d texts, %d pictures", len(want.Texts), len(want.Pictures))
	}
	e, err := Open(filepath.Join("testdata", name), dtype, device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Free)
	return e, want
}

// encode returns the embeddings of all texts and pictures, each in one batch.
func encode(t *testing.T, e *Encoder, want theirs) (text, image []float32) {
	t.Helper()
	var pictures [][]float32
	for _, name := range want.Pictures {
		p, err := e.Picture(filepath.Join("testdata", "pictures", name))
		if err != nil {
			t.Fatal(err)
		}
		pictures = append(pictures, p)
	}
	image, err := e.Images(pictures)
	if err != nil {
		t.Fatal(err)
	}
	var ids [][]int64
	for _, s := range want.Texts {
		one, _ := e.Tokens(s)
		ids = append(ids, one)
	}
	if text, err = e.Texts(ids); err != nil {
		t.Fatal(err)
	}
	return text, image
}

// far is the largest difference of rows.
func far(got []float32, want [][]float64) float64 {
	worst := math.Inf(1)
	if flat := slices.Concat(want...); len(flat) == len(got) {
		worst = 0
		for i, w := range flat {
			worst = max(worst, math.Abs(float64(got[i])-w))
		}
	}
	return worst
}

// TestLikeTransformers: tokens are equal, pixels too, and embeddings within 1e-5.
func TestLikeTransformers(t *testing.T) {
	for _, name := range folders() {
		e, want := load(t, name, "float32", "cpu")
		cuts := 0
		for i, text := range want.Texts {
			ids, cut := e.Tokens(text)
			if cut {
				cuts++
			}
			if !slices.Equal(ids, want.IDs[i]) {
				t.Errorf("%s: %q\n%v, want\n%v", name, text, ids, want.IDs[i])
			}
		}
		if cuts != 3 {
			t.Errorf("%s: %d texts were cut, want 3", name, cuts)
		}
		for i, picture := range want.Pictures {
			p, err := e.Picture(filepath.Join("testdata", "pictures", picture))
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, v := range p {
				sum += float64(v)
			}
			if math.Abs(sum-want.PixelsSum[i]) > 1e-7*float64(len(p)) { // equal values, added in another order
				t.Errorf("%s: %s: the pixels sum to %.9g, want %.9g", name, picture, sum, want.PixelsSum[i])
			}
		}
		text, image := encode(t, e, want)
		if d := far(text, want.Text); d > 1e-5 {
			t.Errorf("%s: text embeddings differ by %.3g", name, d)
		}
		if d := far(image, want.Image); d > 1e-5 {
			t.Errorf("%s: image embeddings differ by %.3g", name, d)
		}
		t.Logf("%s: text %.2g, image %.2g", name, far(text, want.Text), far(image, want.Image))
	}
}

// TestBFloat16: as far from float32 as transformers' bfloat16 is, within a factor: both round every operation.
func TestBFloat16(t *testing.T) { roundsAsTheirs(t, "cpu") }

// TestCUDA: the embeddings of the CPU, in both types.
func TestCUDA(t *testing.T) {
	if !torchx.CUDAAvailable() {
		t.Skip("no CUDA")
	}
	for _, name := range folders() {
		e, want := load(t, name, "float32", "cuda")
		text, image := encode(t, e, want)
		if d := max(far(text, want.Text), far(image, want.Image)); d > 1e-5 {
			t.Errorf("%s: embeddings differ by %.3g", name, d)
		}
	}
	roundsAsTheirs(t, "cuda")
}

func roundsAsTheirs(t *testing.T, device string) {
	for _, name := range folders() {
		e, want := load(t, name, "bfloat16", device)
		text, image := encode(t, e, want)
		for _, x := range []struct {
			what         string
			ours         []float32
			exact, round [][]float64
		}{{"text", text, want.Text, want.BFloat16.Text}, {"image", image, want.Image, want.BFloat16.Image}} {
			var flat []float32
			for _, v := range slices.Concat(x.round...) {
				flat = append(flat, float32(v))
			}
			ours, allowed := far(x.ours, x.exact), far(flat, x.exact)
			if ours == 0 || ours > 3*allowed {
				t.Errorf("%s: %s embeddings are %.3g from those in float32, transformers' %.3g", name, x.what, ours, allowed)
			}
		}
	}
}

// TestBFloat16AgainstFloat64: embeddings in bfloat16 on the device under test, of towers whose norms and attention are torchx's: where
// these are planted to round at each step, the embeddings change.
func TestBFloat16AgainstFloat64(t *testing.T) {
	if golden.Device() != "cpu" && !torchx.CUDAAvailable() {
		t.Skip("no CUDA")
	}
	for _, name := range folders() {
		exact, want := load(t, name, "float64", "cpu")
		rounded, _ := load(t, name, "float64", "cpu")
		end := torchx.Scope()
		for _, w := range rounded.frozen.Tensors {
			torchx.Copy(w, w.To(torchx.BFloat16))
		}
		end()
		low, _ := load(t, name, "bfloat16", golden.Device())
		var all [3][2][]float64
		for i, e := range []*Encoder{low, rounded, exact} {
			text, image := encode(t, e, want)
			all[i] = [2][]float64{wide(text), wide(image)}
		}
		for i, what := range []string{"texts", "pictures"} {
			golden.Rounds(t, name+": "+what, all[0][i], all[1][i], all[2][i])
		}
		cpu, _ := load(t, name, "bfloat16", "cpu")
		text, image := encode(t, cpu, want)
		for plant, what := range map[torchx.Rounding]string{torchx.RoundNorms: "norms", torchx.RoundAttention: "attention"} {
			torchx.PlantRounding(plant)
			texts, images := encode(t, cpu, want)
			torchx.PlantRounding(0)
			if slices.Equal(texts, text) || slices.Equal(images, image) {
				t.Errorf("%s: %s planted to round at each step change nothing: the towers compute them elsewhere", name, what)
			}
		}
	}
}

func wide(x []float32) (out []float64) {
	for _, v := range x {
		out = append(out, float64(v))
	}
	return out
}

// TestAlone: an embedding is the same alone as in a batch, but for the order of sums.
func TestAlone(t *testing.T) {
	e, want := load(t, "quick", "float32", "cpu")
	text, _ := encode(t, e, want)
	for i, s := range want.Texts {
		ids, _ := e.Tokens(s)
		alone, err := e.Texts([][]int64{ids})
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range alone {
			if d := math.Abs(float64(v - text[i*e.Dim+k])); d > 1e-6 {
				t.Fatalf("%q alone differs by %g", s, d)
			}
		}
	}
	if live := torchx.Live(); live > 200 {
		t.Errorf("%d tensors are alive", live)
	}
}

// TestOpenNamesFaults: a folder that would give other embeddings is refused by the key.
func TestOpenNamesFaults(t *testing.T) {
	for _, tc := range []struct{ file, old, new, want string }{
		{"config.json", `"clip"`, `"siglip"`, `model_type "siglip": want clip`},
		{"config.json", `"patch_size": 8`, `"patch_size": 5`, "image_size 32: want a multiple of patch_size 5"},
		{"config.json", `"projection_dim": 12`, `"projection_dim": 13`, "has shape [12 16], want [13 16]"},
		{"config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 3`, "missing ("},
		{"config.json", `"hidden_act": "quick_gelu"`, `"hidden_act": "mish"`, "hidden_act"},
		{"config.json", `"vocab_size": 529`, `"vocab_size": 528`, "the tokenizer has 529 tokens, the model 528"},
		{"preprocessor_config.json", `"do_center_crop": true`, `"do_center_crop": false`, "pictures have sides of 0, the model's image_size is 32"},
		{"preprocessor_config.json", `"resample": 3`, `"resample": 2`, "resample: 2 is not supported"},
		{"preprocessor_config.json", `"do_normalize": true`, `"do_normalize": false`, "do_normalize: false is not supported"},
		{"preprocessor_config.json", `CLIPImageProcessor`, `ViTImageProcessor`, "image_processor_type"},
		{"tokenizer.json", `"Removed"`, `"Isolated"`, "that of CLIP, Removed and inverted"},
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(filepath.Join("testdata", "quick"))); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, tc.file)
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), tc.old) {
			t.Fatalf("%s lacks %s (%v)", tc.file, tc.old, err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), tc.old, tc.new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(folder, "float32", "cpu"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s with %s: got %v, want %q", tc.file, tc.new, err, tc.want)
		}
	}
}

// TestProcessorForms: the three spellings of sizes mean the same.
func TestProcessorForms(t *testing.T) {
	v := Tower{Image: 32, Patch: 8}
	var first string
	for _, text := range []string{`{"size": 32, "crop_size": 32}`, `{"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}`} {
		p, err := parseProcessor([]byte(text), v)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = fmt.Sprint(*p)
		}
		if got := fmt.Sprint(*p); got != first {
			t.Errorf("%s: %s, want %s", text, got, first)
		}
	}
	if _, err := parseProcessor([]byte(`{"size": {"longest_edge": 9}}`), v); err == nil {
		t.Error("longest_edge: no error")
	}
}
