package pixels

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// What qwen_vl_utils takes (its formulas in Python, torch.linspace for the numbers): the count, a sum of
// the numbers (31·sum + number modulo 1000003), the first ones, the rate, and the pixels of a frame.
func TestSampling(t *testing.T) {
	for _, c := range []struct {
		total     int
		rate, fps float64
		count     int
		sum       int
		first     []int
		sampled   float64
		maxPixels int
	}{
		{300, 30, 2, 20, 891252, []int{0, 16, 31, 47, 63, 79}, 2.0, 602112},
		{100, 25, 2, 8, 184895, []int{0, 14, 28, 42, 57, 71}, 2.0, 602112},
		{7, 10, 2, 4, 2052, []int{0, 2, 4, 6}, 5.7142857142857135, 602112},
		{2, 1, 2, 2, 1, []int{0, 1}, 1.0, 602112},
		{3, 30, 2, 2, 2, []int{0, 2}, 20.0, 602112},
		{5000, 30, 2, 332, 100254, []int{0, 15, 30, 45, 60, 76}, 1.992, 544077},
		{90000, 29.97, 2, 768, 285978, []int{0, 117, 235, 352, 469, 587}, 0.255744, 235200},
		{250, 23.976023976023978, 1, 10, 637358, []int{0, 28, 55, 83, 111, 138}, 0.9590409590409591, 602112},
		{64, 8, 4, 32, 194641, []int{0, 2, 4, 6, 8, 10}, 4.0, 602112},
		{1000, 12.5, 0.1, 8, 919304, []int{0, 143, 285, 428, 571, 714}, 0.1, 602112},
		{31, 2, 2, 30, 936704, []int{0, 1, 2, 3, 4, 5}, 1.935483870967742, 602112},
		{32, 2, 2, 32, 751855, []int{0, 1, 2, 3, 4, 5}, 2.0, 602112},
		{60001, 60001.0, 768.0, 768, 701581, []int{0, 78, 156, 235, 313, 391}, 768.0, 235200}, // here counting from both ends shows
		{12345, 59.94, 3, 616, 250507, []int{0, 20, 40, 60, 80, 100}, 2.9909307411907653, 293236},
	} {
		s := DefaultSampling()
		s.FPS = c.fps
		frames, fps, err := s.Frames(c.total, c.rate)
		if err != nil {
			t.Errorf("%d frames: %v", c.total, err)
			continue
		}
		sum := 0
		for _, f := range frames {
			sum = (sum*31 + f) % 1000003
		}
		if len(frames) != c.count || sum != c.sum || !slices.Equal(frames[:len(c.first)], c.first) || fps != c.sampled {
			t.Errorf("%d frames at %g, taken at %g: got %d, %v, sum %d, rate %g; want %+v", c.total, c.rate, c.fps, len(frames),
				frames[:2], sum, fps, c)
		}
		if got := s.Bounds(DefaultConfig(), len(frames)); got.MaxPixels != c.maxPixels || got.MinPixels != 128*28*28 {
			t.Errorf("%d frames: %d to %d pixels, want to %d", len(frames), got.MinPixels, got.MaxPixels, c.maxPixels)
		}
	}
	small := DefaultConfig()
	small.MaxPixels = 50176
	if got := DefaultSampling().Bounds(small, 4); got.MinPixels != 50176 || got.MaxPixels != 50176 {
		t.Errorf("bounds %d to %d: want those of the folder to win", got.MinPixels, got.MaxPixels)
	}
	for _, total := range []int{0, 1} {
		if _, _, err := DefaultSampling().Frames(total, 30); err == nil {
			t.Errorf("%d frames are enough", total)
		}
	}
}

// install puts stand-ins of ffprobe and ffmpeg before the real ones.
func install(t *testing.T, ffprobe, ffmpeg string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the stand-ins are shell scripts")
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"ffprobe": ffprobe, "ffmpeg": ffmpeg} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder)
}

func TestVideoFile(t *testing.T) {
	video := filepath.Join(t.TempDir(), "v.mp4")
	if err := os.WriteFile(video, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	probe := `echo '{"streams":[{"nb_read_packets":"50","avg_frame_rate":"25/1","r_frame_rate":"25/1"}]}'` + "\n"
	img := decode(t, "testdata/images/vid0_0.png")
	frameFile := filepath.Join(t.TempDir(), "frame.ppm")
	if err := os.WriteFile(frameFile, append(fmt.Appendf(nil, "P6\n%d %d\n255\n", img.W, img.H), img.Pix...), 0o644); err != nil {
		t.Fatal(err)
	}
	frame := "/bin/cat " + frameFile + "\n"
	check := `case "$*" in *"select='eq(n,0)+eq(n,16)+eq(n,33)+eq(n,49)',setpts=N/(25*TB)"*"-frames:v 4"*) ;; *) echo "bad arguments $*" >&2; exit 3;; esac` + "\n"

	install(t, probe, check+frame+frame+frame) // the fourth frame is missing: the third stands still
	config := DefaultConfig()
	config.MaxPixels = 50176
	got, err := config.VideoFile(context.Background(), video, DefaultSampling())
	if err != nil {
		t.Fatal(err)
	}
	bounded := DefaultSampling().Bounds(config, 4)
	want, err := patchesOf(bounded, []image.Image{img, img, img, img}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got.Key != want.Key || got.Grid != want.Grid || got.SecondsPerGrid != 1 || !slices.Equal(got.Data, want.Data) {
		t.Errorf("grid %v, %g seconds: want %v, 1, and the values of the frames", got.Grid, got.SecondsPerGrid, want.Grid)
	}
	for _, c := range []struct{ name, probe, ffmpeg, want string }{
		{"not installed", "", "", "v.mp4: reading a video file wants ffprobe, which is not installed (ffmpeg.org); a list or a folder of " +
			"frames does without"},
		{"a broken file", "echo 'moov atom not found' >&2; exit 1", frame, "v.mp4: ffprobe: exit status 1: moov atom not found"},
		{"no video", `echo '{"streams":[]}'`, frame, "v.mp4: the file has no video"},
		{"no rate", `echo '{"streams":[{"nb_read_packets":"5","avg_frame_rate":"0/0"}]}'`, frame, `avg_frame_rate "0/0"`},
		{"one frame", strings.Replace(probe, "50", "1", 1), frame, "video of 1 frames at 25 a second: want two frames at least"},
		{"nothing decoded", probe, "true", "v.mp4: ffmpeg: no frame could be decoded"},
		{"half a frame", probe, "printf 'P6\\n2 1\\n255\\nab'", "v.mp4: ffmpeg: frame 1: unexpected EOF"},
		{"a frame too narrow", probe, "printf 'P6\\n201 1\\n255\\n%603s'; exec /bin/sleep 60",
			"v.mp4: ffmpeg: frame 1: image of 1×201 (height × width): the sides want a ratio of at most 200"},
		{"an error on the way", probe, frame + "echo 'no space' >&2; exit 1", "v.mp4: ffmpeg: exit status 1: no space"},
		{"no image", probe, "echo hello", "v.mp4: ffmpeg: frame 1: bad PPM header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			install(t, c.probe, c.ffmpeg)
			if _, err := config.VideoFile(context.Background(), video, DefaultSampling()); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// The real ffmpeg, where it is installed: a video of any length gives exactly the frames that sampling names. Each frame
// shows its own number, in squares of black and white.
func TestVideoFileOfAnyLength(t *testing.T) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("ffmpeg is not installed")
	}
	const side, rate, bits = 56, 10, 14
	write := func(name string, frames int) string {
		path := filepath.Join(t.TempDir(), name)
		cmd := exec.Command(ffmpeg, "-v", "error", "-f", "rawvideo", "-pix_fmt", "gray", "-s", fmt.Sprintf("%dx%d", side, side), "-r",
			fmt.Sprint(rate),
			"-i", "-", "-c:v", "ffv1", "-g", "100", path)
		raw := make([]byte, 0, frames*side*side)
		for n := range frames {
			for y := range side {
				for x := range side {
					raw = append(raw, byte(255*(n>>(y/14*4+x/14)&1)))
				}
			}
		}
		cmd.Stdin = bytes.NewReader(raw)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return path
	}
	seconds := []int{3, 50, 52}
	if !testing.Short() {
		seconds = append(seconds, 500, 1500) // 1000 frames of 1500 s would be too many: 768
	}
	for _, length := range seconds {
		path := write(fmt.Sprintf("%d.mkv", length), length*rate)
		total, found, err := probe(context.Background(), path)
		if err != nil || total != length*rate || found != rate {
			t.Fatalf("%d s: %d frames at %v, %v", length, total, found, err)
		}
		want, _, err := DefaultSampling().Frames(total, found)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		err = extract(context.Background(), path, want, func(frame *RGB) error {
			n := 0
			for bit := range bits {
				if frame.Pix[3*((bit/4*14+7)*side+bit%4*14+7)] > 127 {
					n |= 1 << bit
				}
			}
			got = append(got, n)
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d s: frames %v, %v; want %v", length, got, err, want)
		}
	}
	p, err := DefaultConfig().VideoFile(context.Background(), write("v.mkv", 52*rate), DefaultSampling())
	if err != nil || p.Grid[0] != 52 { // 104 frames, two a patch
		t.Errorf("52 s: grid %v, %v; want 52 patches in time", p.Grid, err)
	}
}

func TestSelectFrames(t *testing.T) {
	numbers := make([]int, 120)
	for i := range numbers {
		numbers[i] = 3 * i
	}
	got := strings.Split(selectFrames(numbers), ",select=")
	if len(got) != 3 || !strings.HasPrefix(got[0], "select='lt(n,300)+eq(n,300)+eq(n,303)") ||
		!strings.HasPrefix(got[1], "'lt(n,150)+gte(n,300)+eq(n,150)+") || !strings.HasPrefix(got[2], "'gte(n,150)+eq(n,0)+") {
		t.Errorf("got %q", got)
	}
}

// TestDecodeIsPillows: files of every kind have the pixels that transformers makes of what Pillow opens, bit for bit.
func TestDecodeIsPillows(t *testing.T) {
	var want map[string][3]any // width, height, digest
	golden.JSON(t, "testdata/decode.json", &want)
	if len(want) < 98 {
		t.Fatalf("%d files", len(want))
	}
	for name, w := range want {
		path := filepath.Join("testdata", "decode", name)
		got := decode(t, path)
		if got.W != int(w[0].(float64)) || got.H != int(w[1].(float64)) || hash(got.Pix) != w[2] {
			t.Errorf("%s: %d×%d, want %v×%v, or the pixels differ", name, got.W, got.H, w[0], w[1])
		}
		if height, width, err := Size(path); err != nil || width != got.W || height != got.H {
			t.Errorf("%s: %d×%d by its header, %v", name, width, height, err)
		}
	}
}

// TestTransparencyLiesOnWhite: an image in memory with alpha is white where it is clear, and its own colour where it is not.
func TestTransparencyLiesOnWhite(t *testing.T) {
	m := image.NewNRGBA(image.Rect(0, 0, 4, 1))
	copy(m.Pix, []uint8{10, 20, 30, 0, 10, 20, 30, 255, 0, 0, 0, 128, 200, 100, 50, 1})
	want := []uint8{255, 255, 255, 10, 20, 30, 127, 127, 127, 255, 254, 254}
	if got := ToRGB(m).Pix; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	data, err := os.ReadFile("testdata/images/img4.png")
	if err != nil {
		t.Fatal(err)
	}
	uri := "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)
	if got, err := Decode(uri); err != nil || got.Bounds().Dx() != 70 {
		t.Errorf("data URI: %v, %v", got, err)
	}
	folder := t.TempDir()
	for _, c := range []struct {
		name string
		path string
		data []byte
		want string
	}{
		{"text", "a.png", []byte("hello"), "a.png: not an image of a known format (png, jpeg, gif, webp, bmp, tiff)"},
		{"half a file", "b.png", data[:2000], "b.png: "},
		{"empty", "c.jpg", nil, "c.jpg: not an image"},
		{"an address", "https://example.org/a.png", nil, "want a file, not an address (https): nothing is downloaded here"},
		{"a data URI as text", "data:image/png,abc", nil, "data URI: want data:image/…;base64,…"},
		{"arithmetic codes", "e.jpg", mutated(t, "444.jpg", "\xff\xc0\x00\x11", "\xff\xc9\x00\x11"),
			"e.jpg: JPEG of 8 bits, frame 9: want 8 bits, baseline or progressive"},
		{"ink", "f.tiff", mutated(t, "cmyk.tiff", "II", "II"), "f.tiff: tiff: ink, or colours multiplied by an alpha: want RGB"},
		{"multiplied colours", "h.tiff", mutated(t, "associated16.tiff", "II", "II"), "h.tiff: tiff: ink, or colours multiplied by an alpha"},
		{"samples apart", "g.tiff", mutated(t, "rgb.tiff", "\x1c\x01\x03\x00\x01\x00\x00\x00\x01", "\x1c\x01\x03\x00\x01\x00\x00\x00\x02"),
			"g.tiff: tiff: the samples of a pixel stand apart"},
		{"a bomb", "d.bmp", []byte("BM\x00\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00" +
			"\x28\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01\x00\x18\x00" + strings.Repeat("\x00", 24)),
			"image of 65536×65536 pixels, want 1 to 178956970"},
		{"no file", "none.png", nil, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := c.path
			if !strings.Contains(path, ":") {
				path = filepath.Join(folder, path)
			}
			if c.name != "no file" && !strings.Contains(c.path, ":") {
				if err := os.WriteFile(path, c.data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Decode(path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if _, _, err := Size(path); len(c.data) > 0 && c.name != "half a file" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("by its header: got %v, want %s", err, c.want)
			}
		})
	}
}

// mutated returns a file of testdata/decode with some bytes replaced, once.
func mutated(t *testing.T, name, old, with string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "decode", name))
	if err != nil || bytes.Count(data, []byte(old)) != 1 {
		t.Fatalf("%s: %v, or the bytes are not there once", name, err)
	}
	return bytes.Replace(data, []byte(old), []byte(with), 1)
}
