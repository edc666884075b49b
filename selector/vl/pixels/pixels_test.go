package pixels

import (
	"image"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/golden"
	"fulcrum/internal/tensorfile"
)

type expected struct {
	Preprocess struct {
		Images map[string]struct {
			File string
		}
		Videos map[string]struct {
			Frames []string
			FPS    float64
			Second []float64 `json:"second_per_grid_ts"`
		}
	}
	SmartResize []struct {
		Height, Width int
		Min           int `json:"min_pixels"`
		Max           int `json:"max_pixels"`
		Out           []int
		Error         bool
	} `json:"smart_resize"`
}

func TestSmartResize(t *testing.T) {
	var want expected
	golden.JSON(t, golden.Shared(t, "qwen2_5_vl", "expected.json"), &want)
	if len(want.SmartResize) != 168 {
		t.Fatalf("%d cases", len(want.SmartResize))
	}
	for _, c := range want.SmartResize {
		h, w, err := SmartResize(c.Height, c.Width, 28, c.Min, c.Max)
		if c.Error != (err != nil) || err == nil && !slices.Equal([]int{h, w}, c.Out) {
			t.Errorf("%+v: got %d×%d, %v", c, h, w, err)
		}
	}
}

func TestPatchesAreThoseOfTheReference(t *testing.T) {
	folder := golden.Shared(t, "qwen2_5_vl")
	var want expected
	golden.JSON(t, filepath.Join(folder, "expected.json"), &want)
	arrays, err := tensorfile.ReadSafetensors(filepath.Join(folder, "fixtures", "preprocess.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer arrays.Close()
	config, err := OpenConfig(filepath.Join(folder, "tiny_tied"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range want.Preprocess.Images {
		img, err := Decode(filepath.Join(folder, c.File))
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.Image(img)
		if err != nil {
			t.Fatal(err)
		}
		checkPatches(t, arrays, name+".pixel_values", name+".grid_thw", got)
	}
	for name, c := range want.Preprocess.Videos {
		var frames []image.Image
		for _, f := range c.Frames {
			img, err := Decode(filepath.Join(folder, f))
			if err != nil {
				t.Fatal(err)
			}
			frames = append(frames, img)
		}
		got, err := config.Video(frames, c.FPS)
		if err != nil {
			t.Fatal(err)
		}
		if got.SecondsPerGrid != float32(c.Second[0]) {
			t.Errorf("%s: %g seconds, want %g", name, got.SecondsPerGrid, c.Second)
		}
		checkPatches(t, arrays, name+".pixel_values_videos", name+".video_grid_thw", got)
	}
}

func checkPatches(t *testing.T, arrays *tensorfile.File, values, grid string, got Patches) {
	t.Helper()
	v, _ := arrays.Get(values)
	want, err := v.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	g, _ := arrays.Get(grid)
	wantGrid, err := g.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range wantGrid {
		if int64(got.Grid[i]) != n {
			t.Fatalf("%s: grid %v, want %v", values, got.Grid, wantGrid)
		}
	}
	if len(got.Data) != len(want) {
		t.Fatalf("%s: %d values, want %d", values, len(got.Data), len(want))
	}
	for i := range want {
		if math.Float32bits(got.Data[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: value %d of row %d: got %g, want %g", values, i%1176, i/1176, got.Data[i], want[i])
		}
	}
}
