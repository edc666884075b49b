package vl

import (
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		panic(err)
	}
	torchx.Attach(1)
	os.Exit(m.Run())
}

// fixture opens one file of expected arrays.
func fixture(t *testing.T, name string) *tensorfile.File {
	t.Helper()
	f, err := tensorfile.ReadSafetensors(golden.Shared(t, "qwen2_5_vl", "fixtures", name+".safetensors"))
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
		t.Skipf("the repository's copy of the fixtures has no array %s (set FULCRUM_SHARED)", name)
	}
	v, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v, x.Shape
}

func ints(t *testing.T, f *tensorfile.File, name string) []int64 {
	t.Helper()
	x, ok := f.Get(name)
	if !ok {
		t.Fatalf("the fixture has no array %s", name)
	}
	v, err := x.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// expected is what of expected.json the tests read.
type expected struct {
	Preprocess struct {
		Images map[string]struct{ File string }
		Videos map[string]struct{ Frames []string }
	}
	Prompts map[string]struct {
		InputIDs []int64   `json:"input_ids"`
		Images   []string  `json:"images"`
		Videos   []string  `json:"videos"`
		Seconds  []float32 `json:"second_per_grid_ts"`
	} `json:"prompts"`
	RopeIndex map[string]struct {
		Images      [][3]int  `json:"image_grid_thw"`
		Videos      [][3]int  `json:"video_grid_thw"`
		Seconds     []float32 `json:"second_per_grid_ts"`
		HasMask     bool      `json:"has_mask"`
		Deltas      []int     `json:"rope_deltas"`
		PerSecond   float64   `json:"tokens_per_second"`
		ImageToken  int64     `json:"image_token_id"`
		VideoToken  int64     `json:"video_token_id"`
		VisionStart int64     `json:"vision_start_token_id"`
	} `json:"rope_index"`
}

func expectations(t *testing.T) *expected {
	t.Helper()
	var e expected
	golden.JSON(t, golden.Shared(t, "qwen2_5_vl", "expected.json"), &e)
	return &e
}

// prompt builds a prompt of the fixtures from its ids and the source pictures, resized as Pillow 9 did when the fixtures were
// made, the rows always first, and without their transparency: these tests are about the model, and package pixels compares pixels
// with today's Pillow and transformers.
func prompt(t *testing.T, name string) *processor.Prompt {
	t.Helper()
	e := expectations(t)
	p, ok := e.Prompts[name]
	if !ok {
		t.Fatalf("no prompt %s", name)
	}
	config, err := pixels.OpenConfig(filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "preprocessor_config.json")))
	if err != nil {
		t.Fatal(err)
	}
	read := func(file string) image.Image {
		f, err := os.Open(golden.Shared(t, "qwen2_5_vl", file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		img, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := img.(*image.NRGBA); ok {
			for i := 3; i < len(m.Pix); i += 4 {
				m.Pix[i] = 255
			}
		}
		rgb := pixels.ToRGB(img)
		h, w, err := pixels.SmartResize(rgb.H, rgb.W, config.PatchSize*config.MergeSize, config.MinPixels, config.MaxPixels)
		if err != nil {
			t.Fatal(err)
		}
		return rgb.Resize(w, rgb.H).Resize(w, h)
	}
	out := &processor.Prompt{IDs: p.InputIDs}
	for _, name := range p.Images {
		patches, err := config.Image(read(e.Preprocess.Images[name].File))
		if err != nil {
			t.Fatal(err)
		}
		patches.Key = name
		out.Images = append(out.Images, patches)
	}
	for i, name := range p.Videos {
		var frames []image.Image
		for _, file := range e.Preprocess.Videos[name].Frames {
			frames = append(frames, read(file))
		}
		patches, err := config.Video(len(frames), func(i int) (image.Image, error) { return frames[i], nil }, 2/float64(p.Seconds[i]))
		if err != nil {
			t.Fatal(err)
		}
		patches.Key = name
		out.Videos = append(out.Videos, patches)
	}
	return out
}

// openTiny opens one of the fixtures' random models in float32. change, which may be nil, changes the options.
func openTiny(t *testing.T, name string, change func(*Options)) *Model {
	t.Helper()
	path := filepath.Dir(golden.Shared(t, "qwen2_5_vl", name, "config.json"))
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

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
