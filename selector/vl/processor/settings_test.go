package processor

import (
	"strings"
	"testing"
)

// TestSettings: what transformers 5 writes of a processor is read, videos have bounds of their own, and what prepares pictures in
// another way is refused.
func TestSettings(t *testing.T) {
	const model = `{"eos_token_id": 1, "image_token_id": 2, "video_token_id": 3}`
	for _, tc := range []struct {
		name           string
		files          map[string]string
		images, videos int // max_pixels
		fault          string
	}{
		{"one file", map[string]string{"preprocessor_config.json": `{"max_pixels": 7840}`}, 7840, 7840, ""},
		{"no bounds: transformers' own", map[string]string{"preprocessor_config.json": `{}`}, 1003520, 602112, ""},
		{"a file of videos", map[string]string{"preprocessor_config.json": `{"max_pixels": 7840}`,
			"video_preprocessor_config.json": `{"size": {"shortest_edge": 784, "longest_edge": 1568}, "do_sample_frames": false}`}, 7840, 1568, ""},
		{"transformers 5", map[string]string{"preprocessor_config.json": `{"max_pixels": 1}`, "processor_config.json": `{"image_processor":
			{"size": {"shortest_edge": 784, "longest_edge": 3136}}, "video_processor": {"max_pixels": 150000, "fps": 2.0}}`}, 3136, 150000, ""},
		{"another size of patches", map[string]string{"preprocessor_config.json": `{}`, "video_preprocessor_config.json": `{"patch_size": 16}`},
			0, 0, "patch_size, temporal_patch_size and merge_size are [14 2 2] for images and [16 2 2] for videos"},
		{"frames sampled there", map[string]string{"preprocessor_config.json": `{}`,
			"video_preprocessor_config.json": `{"do_sample_frames": true}`}, 0, 0,
			"video_preprocessor_config.json: do_sample_frames = true is not supported, want false"},
		{"frames with their times: the model refuses videos", map[string]string{"preprocessor_config.json": `{"max_pixels": 7840}`,
			"video_preprocessor_config.json": `{"video_processor_type": "Qwen3VLVideoProcessor", "do_sample_frames": true}`}, 7840, 7840, ""},
		{"another processor", map[string]string{"processor_config.json": `{"image_processor": {"image_processor_type": "Qwen3VL"}}`}, 0, 0,
			`processor_config.json: image_processor_type = "Qwen3VL" is not supported, want "Qwen2VLImageProcessor" or `},
	} {
		tc.files["config.json"] = model
		p, err := Open(copyOf(t, tc.files))
		if tc.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fault) {
				t.Errorf("%s: %v, want %s", tc.name, err, tc.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		images, videos := p.pixels, p.videos
		if images.MaxPixels != tc.images || videos.MaxPixels != tc.videos {
			t.Errorf("%s: at most %d and %d pixels, want %d and %d", tc.name, images.MaxPixels, videos.MaxPixels, tc.images, tc.videos)
		}
	}
}

// TestLimitOfImages: a bound for images need not know that of videos.
func TestLimitOfImages(t *testing.T) {
	p, err := Open(copyOf(t, map[string]string{"config.json": `{"eos_token_id": 1, "image_token_id": 2, "video_token_id": 3}`,
		"processor_config.json": `{"image_processor": {"max_pixels": 150000}, "video_processor": {"max_pixels": 150000}}`}))
	if err != nil {
		t.Fatal(err)
	}
	most := 50176
	if err := p.Limit(nil, &most); err != nil || p.pixels.MinPixels != 56*56 || p.pixels.MaxPixels != most || p.videos.MaxPixels != most {
		t.Errorf("%v; images %+v, videos %+v", err, p.pixels, p.videos)
	}
}
