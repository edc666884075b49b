package processor

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/chat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/selector/vl/pixels"
)

func openTiny(t testing.TB) *Processor {
	t.Helper()
	p, err := Open(filepath.Join("testdata", "tiny"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testdata/prompts.json holds the six prompts of the reference, with the ids of HuggingFace's processor.
func TestPromptsAreThoseOfTheReference(t *testing.T) {
	var want map[string]struct {
		Messages  json.RawMessage
		Text      string
		IDs       []int64   `json:"input_ids"`
		ImageGrid [][3]int  `json:"image_grid_thw"`
		VideoGrid [][3]int  `json:"video_grid_thw"`
		Seconds   []float64 `json:"second_per_grid_ts"`
	}
	golden.JSON(t, filepath.Join("testdata", "prompts.json"), &want)
	if len(want) != 6 {
		t.Fatalf("%d prompts", len(want))
	}
	p := openTiny(t)
	for name, c := range want {
		msgs, err := chat.ParseMessages(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Prompt(chat.Resolve(msgs, "../pixels/testdata"))
		if err != nil {
			t.Fatal(name, err)
		}
		if got.Text != c.Text || !slices.Equal(got.IDs, c.IDs) {
			t.Errorf("%s:\n got %q %v\nwant %q %v", name, got.Text, got.IDs, c.Text, c.IDs)
		}
		var images, videos [][3]int
		for _, x := range got.Images {
			images = append(images, x.Grid)
		}
		for i, x := range got.Videos {
			videos = append(videos, x.Grid)
			if x.SecondsPerGrid != float32(c.Seconds[i]) {
				t.Errorf("%s: video %d: %g seconds, want %g", name, i, x.SecondsPerGrid, c.Seconds[i])
			}
		}
		if !slices.Equal(images, c.ImageGrid) || !slices.Equal(videos, c.VideoGrid) {
			t.Errorf("%s: grids %v, %v, want %v, %v", name, images, videos, c.ImageGrid, c.VideoGrid)
		}
	}
}

func TestIDs(t *testing.T) {
	p := openTiny(t)
	want := IDs{EOS: []int64{602, 600}, Pad: 600, ImagePad: 612, VideoPad: 613, VisionStart: 609, VisionEnd: 610, VisionPad: 611}
	if got := p.IDs(); !slices.Equal(got.EOS, want.EOS) || got.Pad != want.Pad || got.ImagePad != want.ImagePad ||
		got.VideoPad != want.VideoPad ||
		got.VisionStart != want.VisionStart || got.VisionEnd != want.VisionEnd || got.VisionPad != want.VisionPad {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []int64
	}{
		{"the generation's own first", map[string]string{"generation_config.json": `{"eos_token_id":600}`,
			"config.json": `{"eos_token_id":[1,2]}`}, []int64{600}},
		{"then the model's", map[string]string{"generation_config.json": `{}`, "config.json": `{"eos_token_id":[1,2]}`}, []int64{1, 2}},
		{"then the nested one", map[string]string{"config.json": `{"text_config":{"eos_token_id":3}}`}, []int64{3}},
		{"then the tokenizer's", map[string]string{"config.json": `{"eos_token_id":null}`}, []int64{602}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Open(copyOf(t, c.files))
			if err != nil || !slices.Equal(p.EOS(), c.want) {
				t.Errorf("got %v, %v, want %v", p, err, c.want)
			}
		})
	}
	_, err := Open(copyOf(t, map[string]string{"config.json": `{}`, "generation_config.json": `{}`, "tokenizer_config.json": `{}`}))
	if err == nil || !strings.Contains(err.Error(), "no end-of-sequence token") {
		t.Errorf("no EOS: %v", err)
	}
	if _, err = Open(copyOf(t, map[string]string{"generation_config.json": `{"eos_token_id":9999}`})); err == nil ||
		!strings.Contains(err.Error(), "eos_token_id 9999 is no token (the vocabulary has 622)") {
		t.Errorf("EOS outside: %v", err)
	}
}

// copyOf returns a folder with the tiny one's tokenizer and the given files.
func copyOf(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", "tiny", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, given := files[name]; !given {
			files[name] = string(data)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func square(side int) (image.Image, error) { return oblong(side, side) }

func oblong(w, h int) (image.Image, error) {
	m := image.NewGray(image.Rect(0, 0, w, h))
	m.Set(1, 1, color.White)
	return m, nil
}

func TestPromptErrors(t *testing.T) {
	p := openTiny(t)
	picture := chat.Part{Type: chat.Image, Picture: func() (image.Image, error) { return square(56) }}
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	for _, c := range []struct {
		name  string
		parts []chat.Part
		want  string
	}{
		{"a placeholder in the text", []chat.Part{picture, text("<|image_pad|>")},
			"the prompt has 2 placeholders <|image_pad|> for 1 image: each wants exactly one"},
		{"a video placeholder", []chat.Part{text("<|video_pad|>")}, "the prompt has 1 placeholder <|video_pad|> for 0 videos"},
		{"no path", []chat.Part{text("x"), {Type: chat.Image}}, "message 1, part 2 (image): no image: want a path"},
		{"no frames", []chat.Part{{Type: chat.Video}}, "message 1, part 1 (video): no video: want a path or a list of frames"},
		{"no file", []chat.Part{{Type: chat.Image, Path: "nowhere.png"}}, "message 1, part 1 (image): open nowhere.png: no such file"},
		{"an address", []chat.Part{{Type: chat.Video, Path: "https://x/v.mp4"}}, "want a file, not an address"},
		{"too narrow", []chat.Part{{Type: chat.Image, Picture: func() (image.Image, error) { return oblong(2010, 10) }}},
			"image of 10×2010 (height × width): the sides want a ratio of at most 200"},
		{"a picture that fails", []chat.Part{{Type: chat.Image,
			Picture: func() (image.Image, error) { return nil, errors.New("no paint") }}}, "message 1, part 1 (image): no paint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := p.Prompt([]chat.Message{{Role: "user", Parts: c.parts}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestCheckReadsHeaders(t *testing.T) {
	p := openTiny(t)
	folder := t.TempDir()
	write := func(name string, w, h int) string {
		img, err := oblong(w, h)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := png.Encode(&file, img); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	small, narrow, fine := write("small.png", 20, 1), write("narrow.png", 3, 601), write("fine.png", 56, 56)
	text := filepath.Join(folder, "text.png")
	if err := os.WriteFile(text, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		part chat.Part
		want string // "" = no error
	}{
		{"fine", chat.Part{Type: chat.Image, Path: fine}, ""},
		{"small: it is enlarged", chat.Part{Type: chat.Image, Path: small}, ""},
		{"too narrow", chat.Part{Type: chat.Image, Path: narrow},
			"narrow.png: image of 601×3 (height × width): the sides want a ratio of at most 200"},
		{"no picture", chat.Part{Type: chat.Image, Path: text}, "text.png: not an image of a known format"},
		{"frames take the first one's size", chat.Part{Type: chat.Video, Frames: []string{fine, narrow}}, ""},
		{"a narrow first frame", chat.Part{Type: chat.Video, Frames: []string{narrow, fine}}, "narrow.png: image of 601×3"},
		{"a frame that is no picture", chat.Part{Type: chat.Video, Frames: []string{fine, text}}, "message 1, part 1 (video): " + text},
		{"in memory", chat.Part{Type: chat.Image, Picture: func() (image.Image, error) { return nil, errors.New("not drawn") }}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			msgs := []chat.Message{{Role: "user", Parts: []chat.Part{c.part}}}
			err := p.Check(msgs)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, refused := p.Prompt(msgs); c.part.Picture == nil && (refused == nil) != (err == nil) {
				t.Errorf("Prompt says %v, Check %v", refused, err)
			}
		})
	}
}

func TestBoundsAndCache(t *testing.T) {
	p := openTiny(t)
	drawn := 0
	part := chat.Part{Type: chat.Image, Key: "square", Picture: func() (image.Image, error) { drawn++; return square(140) }}
	ask := func(part chat.Part) *Prompt {
		t.Helper()
		got, err := p.Prompt([]chat.Message{{Role: "user", Parts: []chat.Part{part}}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := ask(part); got.Images[0].Grid != [3]int{1, 10, 10} {
		t.Errorf("grid %v", got.Images[0].Grid)
	}
	ask(part)
	if drawn != 1 {
		t.Errorf("drawn %d times, want once", drawn)
	}
	part.MaxPixels = 56 * 56
	if got := ask(part); got.Images[0].Grid != [3]int{1, 4, 4} {
		t.Errorf("within 56×56 pixels: grid %v", got.Images[0].Grid)
	}
}

// A folder of frames is the list of its frames.
func TestFolderOfFrames(t *testing.T) {
	p := openTiny(t)
	folder := t.TempDir()
	var list []string
	for _, name := range []string{"vid1_0.png", "vid1_1.png", "vid1_2.png"} {
		path, err := filepath.Abs(filepath.Join("../pixels/testdata/images", name))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, path)
		if err := os.Symlink(path, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for _, part := range []chat.Part{{Type: chat.Video, Frames: list, FPS: 4}, {Type: chat.Video, Path: folder, FPS: 4}} {
		got, err := p.Prompt([]chat.Message{{Role: "user", Parts: []chat.Part{part}}})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, got.Videos[0].Key)
		if got.Videos[0].SecondsPerGrid != 0.5 || got.Videos[0].Grid[0] != 2 {
			t.Errorf("%+v: %g seconds, grid %v", part, got.Videos[0].SecondsPerGrid, got.Videos[0].Grid)
		}
	}
	if keys[0] != keys[1] {
		t.Error("the folder is not the list")
	}
}

func TestTextOnlyFolder(t *testing.T) {
	p, err := Open(copyOf(t, map[string]string{"config.json": `{"eos_token_id":602}`,
		"tokenizer_config.json": `{"eos_token":"<|im_end|>"}`}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Prompt([]chat.Message{{Role: "user", Text: "Hi <|image_pad|>"}})
	if err != nil || !strings.Contains(got.Text, "You are Qwen, created by Alibaba Cloud.") {
		t.Errorf("%+v, %v", got, err)
	}
	if _, has := p.Pixels(); has {
		t.Error("a text-only folder has pixels")
	}
	_, err = p.Prompt([]chat.Message{{Role: "user", Parts: []chat.Part{{Type: chat.Image, Path: "a.png"}}}})
	if err == nil || !strings.Contains(err.Error(),
		"message 1, part 1 (image): this model reads text only (its folder has no preprocessor_config.json)") {
		t.Errorf("image: %v", err)
	}
}

// A processor for a model from random weights, and what Save writes of it.
func TestTrain(t *testing.T) {
	corpus := []string{"what colour is the square", "what colour is the circle", "how many circles are there", "red", "green", "2"}
	p, err := Train(corpus, 320, pixels.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	msgs := []chat.Message{{Role: "user", Parts: []chat.Part{
		{Type: chat.Image, Picture: func() (image.Image, error) { return square(56) }},
		{Type: chat.Text, Text: "what colour is the square"}}}}
	want, err := p.Prompt(msgs)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Tokenizer().Encode("<|im_start|>assistant\n"); len(got) != 3 {
		t.Errorf("%d ids for the head of a turn, want 3: its words were not learned", len(got))
	}
	if p.Tokenizer().Size() > 320+22 {
		t.Errorf("%d tokens, want at most 320 and the 22 added ones", p.Tokenizer().Size())
	}
	folder := t.TempDir()
	if err := p.Save(folder); err != nil {
		t.Fatal(err)
	}
	jinja, err := os.ReadFile(filepath.Join(folder, "chat_template.jinja")) // AutoTokenizer and AutoProcessor read this file
	if err != nil || string(jinja) != p.Template().Source() {
		t.Errorf("chat_template.jinja: %q, %v", jinja, err)
	}
	again, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	got, err := again.Prompt(msgs)
	if err != nil || got.Text != want.Text || !slices.Equal(got.IDs, want.IDs) || got.Images[0].Key != want.Images[0].Key {
		t.Errorf("saved and opened: %v, %v, want %v", got, err, want)
	}
	if again.IDs().ImagePad != p.IDs().ImagePad || again.IDs().EOS[0] != p.IDs().EOS[0] || again.IDs().Pad != p.IDs().Pad {
		t.Errorf("ids %+v, want %+v", again.IDs(), p.IDs())
	}
	if got := again.Tokenizer().Decode(want.IDs, true); !strings.Contains(got, "what colour is the square") || strings.Contains(got, "<|") {
		t.Errorf("decoded: %q", got)
	}
	if _, err := Train(corpus, 100, pixels.DefaultConfig()); err == nil || !strings.Contains(err.Error(), "want 256 at least") {
		t.Errorf("100 tokens: %v", err)
	}
}

// TestBoundsOfAPart: bounds that a record gives its picture are checked as a folder's, early and by Prompt; one alone need not know the
// folder's other.
func TestBoundsOfAPart(t *testing.T) {
	p := openTiny(t)
	frame := "../pixels/testdata/images/vid1_0.png"
	for _, tc := range []struct {
		least, most int
		want        string
	}{
		{1e15, 0, "min_pixels 1000000000000000, max_pixels "}, {1e15, 1e15, "and min at most 67108864"}, {3136, 784, "want 0 < min ≤ max"},
		{0, 784, ""}, {3136, 0, ""},
	} {
		for _, part := range []chat.Part{{Type: chat.Image, Path: frame}, {Type: chat.Video, Frames: []string{frame, frame}}} {
			part.MinPixels, part.MaxPixels = tc.least, tc.most
			msgs := []chat.Message{{Role: "user", Parts: []chat.Part{part}}}
			_, err := p.Prompt(msgs)
			for _, err := range []error{p.Check(msgs), err} {
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s of %d to %d pixels: %v, want %q", part.Type, tc.least, tc.most, err, tc.want)
				}
			}
		}
	}
}

// TestFramesInTheRecord: frames may be data, as images may; the files among them are checked.
func TestFramesInTheRecord(t *testing.T) {
	p := openTiny(t)
	const file = "../pixels/testdata/images/vid1_0.png"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data := "data:image/png;base64," + base64.StdEncoding.EncodeToString(raw)
	for _, frames := range [][]string{{data, data}, {data, file}, {file, data}} {
		msgs := []chat.Message{{Role: "user", Parts: []chat.Part{{Type: chat.Video, Frames: frames}}}}
		if _, err := p.Prompt(msgs); err != nil {
			t.Fatal(err)
		}
		if err := p.Check(msgs); err != nil {
			t.Errorf("Prompt reads it, Check does not: %.200v", err)
		}
	}
	if err := p.Check([]chat.Message{{Parts: []chat.Part{{Type: chat.Video, Frames: []string{data, "missing.png"}}}}}); err == nil {
		t.Error("a frame that is missing passes")
	}
}

// TestOneFrameIsNoImage: images are resized columns first where their height loses more, frames never: what is remembered of one is not
// the other's.
func TestOneFrameIsNoImage(t *testing.T) {
	tall := filepath.Join(t.TempDir(), "tall.png")
	var file bytes.Buffer
	img := image.NewGray(image.Rect(0, 0, 100, 900))
	for i := range img.Pix {
		img.Pix[i] = uint8(i * i * 7)
	}
	if err := png.Encode(&file, img); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tall, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	ask := func(parts ...chat.Part) *Prompt {
		got, err := openTiny(t).Prompt([]chat.Message{{Role: "user", Parts: parts}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	picture, video := chat.Part{Type: chat.Image, Path: tall}, chat.Part{Type: chat.Video, Frames: []string{tall}}
	alone, both := ask(video).Videos[0], ask(picture, video).Videos[0]
	if alone.Key != both.Key || both.SecondsPerGrid != 1 {
		t.Error("a frame behind the image of its file is not resized as a frame")
	}
}

// TestVideoFileWithinItsOwnBounds: the record's least pixels hold for a video file, as in qwen_vl_utils.
func TestVideoFileWithinItsOwnBounds(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"v.mp4": "x",
		"ffprobe": "#!/bin/sh\n" + `echo '{"streams":[{"nb_read_packets":"4","avg_frame_rate":"2/1"}]}'`,
		"ffmpeg":  "#!/bin/sh\nfor i in 1 2 3 4; do printf 'P6\\n56 56\\n255\\n%9408s'; done"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder)
	p := openTiny(t)
	part := chat.Part{Type: chat.Video, Path: filepath.Join(folder, "v.mp4"), MinPixels: 784}
	got, err := p.Prompt([]chat.Message{{Role: "user", Parts: []chat.Part{part}}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Videos[0].Grid != [3]int{2, 4, 4} {
		t.Errorf("grid %v, want 56×56 pixels to stay", got.Videos[0].Grid)
	}
}
