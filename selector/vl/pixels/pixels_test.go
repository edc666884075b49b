package pixels

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

// reference is testdata/reference.json: sizes, and the SHA-256 of the arrays that HuggingFace's
// processor makes of the images beside it.
type reference struct {
	Images map[string]struct {
		File    string
		Grid    [3]int
		SHA256  string
		Resized string `json:"resized_sha256"`
	}
	Videos map[string]struct {
		Frames        []string
		FPS           float64
		SecondPerGrid float64 `json:"second_per_grid"`
		Grid          [3]int
		SHA256        string
	}
	SmartResize [][]int `json:"smart_resize"` // height, width, min, max; then the size, or nothing for an error
}

func openReference(t *testing.T) (reference, Config) {
	t.Helper()
	var r reference
	golden.JSON(t, filepath.Join("testdata", "reference.json"), &r)
	if len(r.Images) != 5 || len(r.Videos) != 2 || len(r.SmartResize) != 189 {
		t.Fatalf("%d images, %d videos, %d sizes", len(r.Images), len(r.Videos), len(r.SmartResize))
	}
	config, err := OpenConfig("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return r, config
}

func decode(t testing.TB, path ...string) *RGB {
	t.Helper()
	img, err := Decode(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return img.(*RGB)
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func hashFloats(v []float32) string { // little-endian machines only, as the fixtures are
	return hash(unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v)))
}

func patchesOf(c Config, frames []image.Image, fps float64) (Patches, error) {
	return c.Video(len(frames), func(i int) (image.Image, error) { return frames[i], nil }, fps)
}

func TestSmartResize(t *testing.T) {
	want, _ := openReference(t)
	for _, c := range want.SmartResize {
		h, w, err := SmartResize(c[0], c[1], 28, c[2], c[3])
		if len(c) == 4 != (err != nil) || err == nil && !slices.Equal([]int{h, w}, c[4:]) {
			t.Errorf("%v: got %d×%d, %v", c, h, w, err)
		}
	}
}

func TestPatchesAreThoseOfTheReference(t *testing.T) {
	want, config := openReference(t)
	for name, c := range want.Images {
		img := decode(t, "testdata", c.File)
		got, err := config.Image(img)
		if err != nil {
			t.Fatal(err)
		}
		if r := img.Resize(got.Grid[2]*14, got.Grid[1]*14); hash(r.Pix) != c.Resized {
			t.Errorf("%s: the resized image differs", name)
		}
		if got.Grid != c.Grid || got.SecondsPerGrid != 0 || hashFloats(got.Data) != c.SHA256 {
			t.Errorf("%s: grid %v, want %v, or the values differ", name, got.Grid, c.Grid)
		}
		if got.Rows*config.Width() != len(got.Data) || got.Tokens(config) != got.Rows/4 {
			t.Errorf("%s: %d rows, %d tokens of %d values", name, got.Rows, got.Tokens(config), len(got.Data))
		}
	}
	for name, c := range want.Videos {
		var frames []image.Image
		for _, f := range c.Frames {
			frames = append(frames, decode(t, "testdata", f))
		}
		got, err := patchesOf(config, frames, c.FPS)
		if err != nil {
			t.Fatal(err)
		}
		if got.Grid != c.Grid || got.SecondsPerGrid != float32(c.SecondPerGrid) || hashFloats(got.Data) != c.SHA256 {
			t.Errorf("%s: grid %v, want %v, %g seconds, want %g, or the values differ", name, got.Grid, c.Grid, got.SecondsPerGrid,
				c.SecondPerGrid)
		}
	}
}

// The same against the arrays themselves, where the reference folder is at hand: says which value. They are of transformers 4
// over Pillow 9, which dropped transparency and began every resize with the rows.
func TestPatchesAgainstTheArrays(t *testing.T) {
	arrays, err := tensorfile.ReadSafetensors(golden.Shared(t, "qwen2_5_vl", "fixtures", "preprocess.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer arrays.Close()
	want, config := openReference(t)
	for name, c := range want.Images {
		if name == "img1" { // it has alpha
			continue
		}
		img := decode(t, "testdata", c.File)
		got, err := config.Image(img.Resize(c.Grid[2]*14, img.H).Resize(c.Grid[2]*14, c.Grid[1]*14))
		if err != nil {
			t.Fatal(err)
		}
		array, ok := arrays.Get(name + ".pixel_values")
		if !ok {
			t.Fatalf("no array of %s", name)
		}
		values, err := array.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if math.Float32bits(got.Data[i]) != math.Float32bits(v) {
				t.Fatalf("%s: value %d of row %d: got %g, want %g", name, i%1176, i/1176, got.Data[i], v)
			}
		}
	}
}

func TestVideo(t *testing.T) {
	_, config := openReference(t)
	a, b, c := decode(t, "testdata/images/vid0_0.png"), decode(t, "testdata/images/vid0_1.png"), decode(t, "testdata/images/img4.png")
	odd, err := patchesOf(config, []image.Image{a, b, c}, 0)
	if err != nil {
		t.Fatal(err)
	}
	even, err := patchesOf(config, []image.Image{a, b, c, c}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if odd.Grid[0] != 2 || odd.SecondsPerGrid != 1 || !slices.Equal(odd.Data, even.Data) {
		t.Error("an odd video is not the one that repeats its last frame, at 2 frames a second")
	}
	first, err := config.Image(a)
	if err != nil {
		t.Fatal(err)
	}
	if odd.Grid[1] != first.Grid[1] || odd.Grid[2] != first.Grid[2] {
		t.Errorf("grid %v: want the size of the first frame, %v", odd.Grid, first.Grid)
	}
	again, err := config.Image(&image.NRGBA{Pix: withFourth(a), Stride: 4 * a.W, Rect: a.Bounds()})
	if err != nil {
		t.Fatal(err)
	}
	if again.Key != first.Key || first.Key == odd.Key || first.Key == "" {
		t.Errorf("keys %q and %q of one image, %q of a video", first.Key, again.Key, odd.Key)
	}
	for _, fps := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := patchesOf(config, []image.Image{a}, fps); err == nil {
			t.Errorf("fps %g is taken", fps)
		}
	}
	if _, err := patchesOf(config, nil, 1); err == nil || !strings.Contains(err.Error(), "no frames") {
		t.Errorf("no frames: %v", err)
	}
}

// withFourth returns the pixels with an alpha that hides nothing.
func withFourth(m *RGB) (pix []uint8) {
	for i := 0; i < len(m.Pix); i += 3 {
		pix = append(pix, m.Pix[i], m.Pix[i+1], m.Pix[i+2], 255)
	}
	return pix
}

func TestConfig(t *testing.T) {
	for _, c := range []struct{ name, json, want string }{
		{"defaults", `{}`, `{3136 1003520 14 2 2 [0.48145466 0.4578275 0.40821073] [0.26862954 0.26130258 0.27577711]}`},
		{"newer names", `{"size":{"shortest_edge":784,"longest_edge":7840},"image_processor_type":"Qwen2VLImageProcessorFast"}`,
			`{784 7840 14 2 2`},
		{"older names win", `{"size":{"shortest_edge":784,"longest_edge":7840},"min_pixels":28}`, `{28 7840 14`},
		{"another processor", `{"image_processor_type":"CLIPImageProcessor"}`,
			`image_processor_type = "CLIPImageProcessor" is not supported, want "Qwen2VLImageProcessor" or `},
		{"a step switched off", `{"do_normalize":false}`, `do_normalize: false is not supported`},
		{"another filter", `{"resample":2}`, `resample: 2 is not supported (3: bicubic)`},
		{"another scale", `{"rescale_factor":1}`, `rescale_factor: 1 is not supported (1/255)`},
		{"two channels", `{"image_mean":[1,2]}`, `image_mean has 2 values, want 3`},
		{"min above max", `{"min_pixels":10,"max_pixels":5}`, `min_pixels 10, max_pixels 5: want 0 < min ≤ max`},
		{"no patches", `{"patch_size":0}`, `patch_size 0, merge_size 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := images().parse([]byte(c.json))
			got := fmt.Sprint(config)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	want, err := OpenConfig("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := images().parse(want.JSON("")); err != nil || got != want {
		t.Errorf("written and read: %v, %v, want %v", got, err, want)
	}
}

func TestCache(t *testing.T) {
	const cell = 28 * 28 * 3 // bytes of the smallest image
	cache := NewCache(10 * cell)
	config := DefaultConfig()
	made := 0
	get := func(key string, cells int, config Config) {
		t.Helper()
		img := newRGB(28*cells, 28)
		for i := range img.Pix {
			img.Pix[i] = uint8(i * cells)
		}
		want := config.patches([]*RGB{img})
		p, err := cache.Get(key, config, func() (Patches, error) {
			made++
			return want, nil
		})
		if err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%s: not the patches that were kept: %v", key, err)
		}
	}
	step := func(name string, want int, f func()) {
		t.Helper()
		made = 0
		f()
		if made != want {
			t.Errorf("%s: made %d, want %d", name, made, want)
		}
	}
	step("kept", 2, func() { get("a", 4, config); get("b", 4, config); get("a", 4, config) })
	step("the one used longest ago goes", 2, func() { get("c", 3, config); get("a", 4, config); get("b", 4, config) })
	step("without a key", 2, func() { get("", 1, config); get("", 1, config) })
	step("too large", 2, func() { get("large", 11, config); get("large", 11, config) })
	other := config
	other.MaxPixels--
	step("another configuration", 1, func() { get("b", 4, config); get("b", 4, other) })

	file := filepath.Join(t.TempDir(), "x")
	read := func(fps float64) {
		_, _ = cache.Files([]string{file}, fps, config, func() (Patches, error) { made++; return Patches{}, nil })
	}
	step("no such file is not kept", 2, func() { read(0); read(0) })
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	step("a file", 1, func() { write("a"); read(0); read(0) })
	step("a changed file", 1, func() { write("bc"); read(0); read(0) })
	step("another rate", 1, func() { read(2) })
}

// Pictures of the same bytes in another shape have other keys: vectors are remembered by them.
func TestKeyHoldsTheShape(t *testing.T) {
	config, keys := DefaultConfig(), map[string]string{}
	for name, frames := range map[string][]*RGB{"wide": {newRGB(56, 28)}, "high": {newRGB(28, 56)}, "two": {newRGB(28, 28), newRGB(28, 28)},
		"one": {newRGB(28, 28)}} {
		key := config.patches(frames).Key
		if other := keys[key]; other != "" {
			t.Errorf("%s and %s have one key", name, other)
		}
		keys[key] = name
	}
}

// An image that is no regular file is refused at once: a pipe would block, /dev/zero has no end.
func TestImagesAreRegularFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.png")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		for _, path := range []string{pipe, "/dev/zero"} {
			if _, err := Decode(path); err == nil || !strings.Contains(err.Error(), "want a regular file") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("waits for a pipe")
	}
}
