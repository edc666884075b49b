package pixels

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
)

// kind is what transformers prepares in its own way: its class, and the bounds that hold where a file says nothing.
type kind struct {
	part     string   // of processor_config.json
	files    []string // where that file or the part is missing
	keys     hffolder.Keys
	min, max int
}

func images() kind {
	return kind{"image_processor", []string{imageName}, ImageKeys(), 56 * 56, 28 * 28 * 1280}
}

func videos() kind {
	return kind{"video_processor", []string{"video_preprocessor_config.json", imageName}, VideoKeys(), 128 * 28 * 28, 28 * 28 * 768}
}

const imageName = "preprocessor_config.json"

// OpenConfig reads how a folder's images become pixels: preprocessor_config.json, or what transformers 5 writes,
// processor_config.json. Steps that it switches off, and other processors and filters, are errors.
func OpenConfig(folder string) (Config, error) { return images().open(folder) }

// OpenVideoConfig is OpenConfig for videos, which may have a file of their own.
func OpenVideoConfig(folder string) (Config, error) { return videos().open(folder) }

// VideoSettings returns the file of OpenVideoConfig, or the part of one, as it stands.
func VideoSettings(folder string) ([]byte, error) {
	_, raw, err := ReadSettings(folder, videos().part, videos().files...)
	return raw, err
}

func (k kind) open(folder string) (Config, error) {
	path, data, err := ReadSettings(folder, k.part, k.files...)
	if err != nil {
		return Config{}, err
	}
	c, err := k.parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ReadSettings returns part of a folder's processor_config.json where it has one, as transformers does, else the first of some older
// files that there is, and the path of the file.
func ReadSettings(folder, part string, older ...string) (path string, raw []byte, err error) {
	path = filepath.Join(folder, "processor_config.json")
	data, err := regular.ReadOptional(path)
	if err != nil {
		return path, nil, err
	}
	var parts map[string]json.RawMessage
	if data != nil {
		if err := jsonwords.Unmarshal(data, &parts); err != nil {
			return path, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if raw, ok := parts[part]; ok {
		return path, raw, nil
	}
	for _, name := range older {
		path = filepath.Join(folder, name)
		if raw, err = regular.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return path, raw, err
}

// settings is the file.
type settings struct {
	Min      *int     `json:"min_pixels"`
	Max      *int     `json:"max_pixels"`
	Size     sizeJSON `json:"size"`
	Patch    *int     `json:"patch_size"`
	Temporal *int     `json:"temporal_patch_size"`
	Merge    *int     `json:"merge_size"`
	Steps
}

type sizeJSON struct {
	Shortest *int `json:"shortest_edge"` // newer name of min_pixels
	Longest  *int `json:"longest_edge"`
}

// idle lists the keys of all processors of pictures that change nothing here.
func idle() []string {
	return []string{"processor_class", "auto_map", "default_to_square", "do_center_crop", "crop_size", "do_pad", "pad_size", "data_format",
		"input_data_format", "device", "return_tensors", "disable_grouping", "image_seq_length", "backend"}
}

// ImageKeys says what becomes of the keys of preprocessor_config.json.
func ImageKeys() hffolder.Keys {
	return hffolder.Keys{Of: imageName, Class: "Qwen2VLImageProcessor", Used: hffolder.Tags(settings{}),
		Idle: append(idle(), "feature_extractor_type", "video_processor_type"),
		Want: map[string][]string{"image_processor_type": {`"Qwen2VLImageProcessor"`, `"Qwen2VLImageProcessorFast"`,
			`"Qwen2VLImageProcessorPil"`, `"Qwen2_5_VLImageProcessor"`, `"Qwen2_5_VLImageProcessorFast"`}}}
}

// VideoKeys says what becomes of the keys of video_preprocessor_config.json.
func VideoKeys() hffolder.Keys {
	return hffolder.Keys{Of: "video_preprocessor_config.json", Class: "Qwen2VLVideoProcessor", Used: hffolder.Tags(settings{}),
		Idle: append(idle(), "image_processor_type", "feature_extractor_type",
			"fps", "num_frames", "min_frames", "max_frames", // of do_sample_frames
			"max_video_tokens", // of cap_pixels_per_frame
			"video_metadata", "return_metadata", "use_token_compression"),
		Want: map[string][]string{"do_sample_frames": {"false"}, "cap_pixels_per_frame": {"false"},
			"video_processor_type": {`"Qwen2VLVideoProcessor"`, `"Qwen2_5_VLVideoProcessor"`}}}
}

// ErrTimed says that a folder's videos are prepared as those of Qwen3-VL: frame by frame, with the time between them as text.
var ErrTimed = errors.New("videos of Qwen3-VL are not supported")

func (k kind) parse(data []byte) (Config, error) {
	c := DefaultConfig()
	c.MinPixels, c.MaxPixels = k.min, k.max
	var f struct {
		settings
		Videos string `json:"video_processor_type"`
	}
	if err := jsonwords.Unmarshal(data, &f); err != nil {
		return Config{}, err
	}
	if f.Videos == "Qwen3VLVideoProcessor" {
		return Config{}, ErrTimed
	}
	if err := k.keys.Check("", data); err != nil {
		return Config{}, err
	}
	set(&c.MinPixels, f.Size.Shortest, f.Min)
	set(&c.MaxPixels, f.Size.Longest, f.Max)
	if f.Size.Shortest == nil && f.Min == nil {
		c.MinPixels = min(c.MinPixels, c.MaxPixels)
	}
	set(&c.PatchSize, f.Patch)
	set(&c.TemporalPatchSize, f.Temporal)
	set(&c.MergeSize, f.Merge)
	if err := f.Steps.Apply(&c); err != nil {
		return Config{}, err
	}
	return c, c.Validate()
}

// Steps are the keys of preprocessor_config.json that all processors of pictures have.
type Steps struct {
	Mean      []float64 `json:"image_mean"`
	Std       []float64 `json:"image_std"`
	Resize    *bool     `json:"do_resize"`
	Rescale   *bool     `json:"do_rescale"`
	Normalize *bool     `json:"do_normalize"`
	Convert   *bool     `json:"do_convert_rgb"`
	Factor    *float64  `json:"rescale_factor"`
	Resample  *int      `json:"resample"`
}

// Apply takes over what c can express and refuses the rest.
func (s Steps) Apply(c *Config) error {
	for _, v := range []struct {
		key  string
		from []float64
		to   *[3]float64
	}{{"image_mean", s.Mean, &c.Mean}, {"image_std", s.Std, &c.Std}} {
		if v.from == nil {
			continue
		}
		if len(v.from) != 3 {
			return fmt.Errorf("%s has %d values, want 3", v.key, len(v.from))
		}
		*v.to = [3]float64(v.from)
	}
	for key, on := range map[string]*bool{"do_resize": s.Resize, "do_rescale": s.Rescale, "do_normalize": s.Normalize,
		"do_convert_rgb": s.Convert} {
		if on != nil && !*on {
			return fmt.Errorf("%s: false is not supported", key)
		}
	}
	const bicubic = 3
	if s.Resample != nil && *s.Resample != bicubic {
		return fmt.Errorf("resample: %d is not supported (3: bicubic)", *s.Resample)
	}
	if s.Factor != nil && math.Abs(*s.Factor*255-1) > 1e-9 {
		return fmt.Errorf("rescale_factor: %g is not supported (1/255)", *s.Factor)
	}
	return nil
}

func set(to *int, from ...*int) {
	for _, v := range from {
		if v != nil {
			*to = *v
		}
	}
}

// JSON returns preprocessor_config.json. class is its processor_class, "" = Qwen2.5-VL's.
func (c Config) JSON(class string) []byte {
	text, _ := json.MarshalIndent(map[string]any{
		"image_processor_type": "Qwen2VLImageProcessor", "processor_class": cmp.Or(class, "Qwen2_5_VLProcessor"),
		"min_pixels": c.MinPixels, "max_pixels": c.MaxPixels,
		"patch_size": c.PatchSize, "temporal_patch_size": c.TemporalPatchSize, "merge_size": c.MergeSize,
		"image_mean": c.Mean, "image_std": c.Std,
	}, "", "  ") // numbers and texts always marshal
	return text
}
