package conversation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"fulcrum/internal/chat"
	"fulcrum/internal/option"
)

// VideoOptions is the section data.conversations.video of the configuration: which frames of a video are taken, as
// Qwen's own tools do it. A record's own numbers win.
type VideoOptions struct {
	// frames taken of a second of a video file
	FPS float64 `koanf:"fps" range:"(0,inf)"`
	// fewest frames of a video file, where it has as many
	MinFrames int `koanf:"min_frames" range:"[2,8192]"`
	// most frames of a video; longer lists of frames are thinned evenly
	MaxFrames int `koanf:"max_frames" range:"[2,8192]"`
}

// mostFrames bounds max_frames: the numbers of the frames go to ffmpeg as one argument, which Linux limits to 128 KiB.
const mostFrames = 8192

// DefaultVideoOptions returns the values of the package qwen_vl_utils.
func DefaultVideoOptions() VideoOptions { return VideoOptions{FPS: 2, MinFrames: 4, MaxFrames: 768} }

// Validate reports bounds that leave no number of frames.
func (o VideoOptions) Validate() error {
	return option.Want(o.MinFrames <= o.MaxFrames, "min_frames", "want 2 to max_frames %d, got %d", o.MaxFrames, o.MinFrames)
}

// apply gives every video of a prompt its rate and bounds: the part's own, else what meta says, else those of o.
//
// Keys of meta hold one value, or a list with one for every video: fps; min_frames, max_frames; frame_cnts, the frames
// of each action in a clip, whose sum bounds the number that is taken; dynamic_sample, which must be true for a file (the
// number of frames follows the rate within the bounds); and frames, num_frames, nframes or frame_count, the number that a
// list of frame files is thinned to.
func (o VideoOptions) apply(messages []chat.Message, meta json.RawMessage) error {
	var keys map[string]json.RawMessage
	if !empty(meta) && json.Unmarshal(meta, &keys) != nil {
		keys = nil // not an object: none of ours
	}
	var videos []*chat.Part
	for m := range messages {
		for i := range messages[m].Parts {
			if p := &messages[m].Parts[i]; p.Type == chat.Video {
				videos = append(videos, p)
			}
		}
	}
	for i, v := range videos {
		if err := o.applyTo(v, videoMeta{keys, i, len(videos)}); err != nil {
			return err
		}
	}
	return nil
}

func (o VideoOptions) applyTo(v *chat.Part, meta videoMeta) error {
	fps, ok, err := meta.number("fps")
	switch {
	case err != nil:
		return err
	case ok && !(fps > 0):
		return fmt.Errorf("meta.fps: want a positive number, got %v", fps)
	case ok && v.FPS == 0:
		v.FPS = fps
	}
	for _, bound := range []struct {
		key string
		to  *int
	}{{"min_frames", &v.MinFrames}, {"max_frames", &v.MaxFrames}} {
		n, ok, err := meta.count(bound.key)
		if err != nil {
			return err
		}
		if ok && *bound.to == 0 {
			*bound.to = n
		}
	}
	switch low, high := v.MinFrames, v.MaxFrames; {
	case high != 0 && low > high:
		return fmt.Errorf("the %s video: min_frames %d is more than max_frames %d", ordinal(meta.i+1), low, high)
	case high == 1 || high > mostFrames:
		return fmt.Errorf("the %s video: max_frames: want 2 to %d, got %d", ordinal(meta.i+1), mostFrames, high)
	case low > mostFrames:
		return fmt.Errorf("the %s video: min_frames: want at most %d, got %d", ordinal(meta.i+1), mostFrames, low)
	case high == 0:
		v.MaxFrames = max(o.MaxFrames, low)
	}
	v.MinFrames = cmp.Or(v.MinFrames, min(o.MinFrames, v.MaxFrames))
	if err := meta.frameCounts(v); err != nil {
		return err
	}
	if len(v.Frames) > 0 {
		return meta.thin(v)
	}
	v.FPS = cmp.Or(v.FPS, o.FPS)
	return meta.dynamic()
}

// videoMeta reads what the keys of meta say of video i of n.
type videoMeta struct {
	keys map[string]json.RawMessage
	i, n int
}

// value returns the key's value, or entry i if it is a list of n; ok is false without a value.
func (m videoMeta) value(key string) (raw json.RawMessage, ok bool) {
	raw = m.keys[key]
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && list != nil {
		if len(list) != m.n {
			return raw, true // no list of ours: what it should be is said where it is read
		}
		raw = list[m.i]
	}
	return raw, len(raw) > 0 && string(raw) != "null"
}

func (m videoMeta) number(key string) (x float64, ok bool, err error) {
	raw, ok := m.value(key)
	if ok && json.Unmarshal(raw, &x) != nil {
		return 0, false, fmt.Errorf("meta.%s: want a number, or a list with one for each of the %d videos, got %s", key, m.n, raw)
	}
	return x, ok, nil
}

func (m videoMeta) count(key string) (int, bool, error) {
	x, ok, err := m.number(key)
	if err == nil && ok && (x < 1 || x != math.Trunc(x) || x > math.MaxInt32) {
		err = fmt.Errorf("meta.%s: want a whole number of frames, got %v", key, x)
	}
	return int(x), ok && err == nil, err
}

// frameCounts bounds the frames by the sum of frame_cnts: a number or a list for one video, a list of these for several.
func (m videoMeta) frameCounts(v *chat.Part) error {
	raw := m.keys["frame_cnts"]
	if m.n > 1 {
		raw, _ = m.value("frame_cnts")
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var one float64
	counts := []float64{}
	if json.Unmarshal(raw, &one) == nil {
		counts = append(counts, one)
	} else if json.Unmarshal(raw, &counts) != nil || len(counts) == 0 {
		return fmt.Errorf("meta.frame_cnts: want whole numbers of frames, a list for each video, got %s", raw)
	}
	sum := 0.0
	for _, c := range counts {
		if c < 1 || c != math.Trunc(c) || c > math.MaxInt32 {
			return fmt.Errorf("meta.frame_cnts: want whole numbers of frames, got %v", c)
		}
		sum += c
	}
	if n := len(v.Frames); n > 0 && int(sum) > n {
		return fmt.Errorf("meta.frame_cnts says %v frames, the %s video has %d files", sum, ordinal(m.i+1), n)
	}
	v.MaxFrames = max(2, min(v.MaxFrames, int(sum)))
	v.MinFrames = min(v.MinFrames, v.MaxFrames)
	return nil
}

// dynamic refuses a video file whose number of frames should not follow its length.
func (m videoMeta) dynamic() error {
	raw, ok := m.value("dynamic_sample")
	if !ok {
		return nil
	}
	var dynamic bool
	if json.Unmarshal(raw, &dynamic) != nil {
		return fmt.Errorf("meta.dynamic_sample: want true or false, got %s", raw)
	}
	if !dynamic {
		return errors.New("meta.dynamic_sample is false: the number of frames of a video file always follows fps within " +
			"min_frames and max_frames; " +
			"give both the same number, or true")
	}
	return nil
}

// thin keeps as many of a list's frames as meta and max_frames say, evenly, and gives them their rate.
func (m videoMeta) thin(v *chat.Part) error {
	for _, key := range []string{"frames", "num_frames", "nframes", "frame_count"} {
		n, ok, err := m.count(key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if len(v.Frames) < n {
			return fmt.Errorf("meta.%s says %v frames, the %s video has %d files", key, n, ordinal(m.i+1), len(v.Frames))
		}
		v.Frames = thin(v.Frames, n) // fps is said of these
	}
	if all := len(v.Frames); all > v.MaxFrames {
		v.Frames = thin(v.Frames, v.MaxFrames/2*2)
		v.FPS = cmp.Or(v.FPS, DefaultVideoOptions().FPS) * (float64(len(v.Frames)) / float64(all))
	}
	v.MinFrames, v.MaxFrames = 0, 0 // of no more use: a list is taken as it is
	return nil
}

// thin keeps n evenly spaced entries, first and last included: those at round(linspace(0, len-1, n)).
func thin(frames []string, n int) []string {
	if n == len(frames) {
		return frames
	}
	out := make([]string, n)
	for i := range out {
		at := 0.0
		if n > 1 {
			at = float64(i) * float64(len(frames)-1) / float64(n-1)
		}
		out[i] = frames[int(math.RoundToEven(at))]
	}
	return out
}
