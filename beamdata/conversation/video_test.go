package conversation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/chat"
)

// videoParts decodes a record about clip.mp4, or what else stands in video, and returns its videos.
func videoParts(t *testing.T, o VideoOptions, record string) ([]chat.Part, error) {
	t.Helper()
	s, err := decode([]byte(record), "/data", o)
	var out []chat.Part
	for _, m := range s.Messages {
		for _, p := range m.Parts {
			if p.Type == chat.Video {
				out = append(out, p)
			}
		}
	}
	return out, err
}

func TestVideoBounds(t *testing.T) {
	ask := `"conversations": [{"from": "human", "value": "<video>"}]`
	list := func(n int) string {
		var frames []string
		for i := range n {
			frames = append(frames, fmt.Sprintf("%02d.png", i))
		}
		text, _ := json.Marshal(frames)
		return string(text)
	}
	clip := func(fps float64, low, high int) chat.Part {
		return chat.Part{Type: chat.Video, Path: "/data/v.mp4", FPS: fps, MinFrames: low, MaxFrames: high}
	}
	few := VideoOptions{FPS: 1, MinFrames: 6, MaxFrames: 8}
	for _, tc := range []struct {
		name, record string
		options      VideoOptions
		want         chat.Part
	}{
		{"Qwen's values", `{"video": "v.mp4", ` + ask + `}`, DefaultVideoOptions(), clip(2, 4, 768)},
		{"the configuration's", `{"video": "v.mp4", ` + ask + `}`, few, clip(1, 6, 8)},
		{"the recipe's own meta", `{"video": "v.mp4", "meta": {"frame_cnts": [15, 11], "min_frames": 4, "max_frames": 8, ` +
			`"dynamic_sample": true}, ` + ask + `}`, DefaultVideoOptions(), clip(2, 4, 8)},
		{"an odd bound of the recipe's", `{"video": "v.mp4", "meta": {"frame_cnts": [3], "min_frames": 3, "max_frames": 3, ` +
			`"dynamic_sample": true}, ` + ask + `}`, DefaultVideoOptions(), clip(2, 3, 3)},
		{"no more frames than were counted", `{"video": "v.mp4", "meta": {"frame_cnts": [2, 3]}, ` + ask + `}`, few, clip(1, 5, 5)},
		{"one bound of meta moves the other default", `{"video": "v.mp4", "meta": {"max_frames": 2}, ` + ask + `}`, few, clip(1, 2, 2)},
		{"upwards too", `{"video": "v.mp4", "meta": {"min_frames": 20}, ` + ask + `}`, few, clip(1, 20, 20)},
		{"the video's own win over meta", `{"video": {"video": "v.mp4", "fps": 3, "max_frames": 10}, "meta": {"fps": 9, ` +
			`"max_frames": 4}, ` + ask + `}`, few, clip(3, 6, 10)},
		{"a part of a message", `{"messages": [{"role": "user", "content": [{"type": "video", "video": "v.mp4", ` +
			`"min_frames": 2}]}], "meta": {"fps": 5}}`, few, clip(5, 2, 8)},
		{"a long list is thinned, its rate with it", `{"video": ` + list(20) + `, "meta": {"fps": 4}, ` + ask + `}`,
			VideoOptions{FPS: 1, MinFrames: 2, MaxFrames: 5},
			chat.Part{Type: chat.Video, FPS: 0.8, Frames: []string{"/data/00.png", "/data/06.png", "/data/13.png", "/data/19.png"}}},
		{"a short list is taken as it is", `{"video": ` + list(3) + `, ` + ask + `}`, few,
			chat.Part{Type: chat.Video, Frames: []string{"/data/00.png", "/data/01.png", "/data/02.png"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := videoParts(t, tc.options, tc.record)
			if err != nil || !reflect.DeepEqual(got, []chat.Part{tc.want}) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, tc.want)
			}
		})
	}
	got, err := videoParts(t, few, `{"videos": ["a.mp4", "b.mp4"], "meta": {"max_frames": [6, 4], "frame_cnts": [[2, 1], `+
		`40]}, "conversations": [{"from": "human", "value": "<video><video>"}]}`)
	if err != nil || len(got) != 2 || got[0].MaxFrames != 3 || got[1].MaxFrames != 4 {
		t.Errorf("two videos: %+v, %v", got, err)
	}
}

func TestVideoBoundsAreRefusedByName(t *testing.T) {
	for _, tc := range []struct{ name, meta, want string }{
		{"text", `{"max_frames": "8"}`, `meta.max_frames: want a number, or a list with one for each of the 1 videos, got "8"`},
		{"a list too long", `{"min_frames": [4, 4]}`, `meta.min_frames: want a number, or a list with one for each of the 1 ` +
			`videos, got [4, 4]`},
		{"half a frame", `{"min_frames": 2.5}`, "meta.min_frames: want a whole number of frames, got 2.5"},
		{"none", `{"max_frames": 0}`, "meta.max_frames: want a whole number of frames, got 0"},
		{"one", `{"max_frames": 1}`, "the 1st video: max_frames: want 2 to 8192, got 1"},
		{"too many", `{"max_frames": 100000}`, "the 1st video: max_frames: want 2 to 8192, got 100000"},
		{"more at least than at most", `{"min_frames": 9, "max_frames": 8}`, "the 1st video: min_frames 9 is more than max_frames 8"},
		{"a count that is none", `{"frame_cnts": [4, "x"]}`, `meta.frame_cnts: want whole numbers of frames, a list for each ` +
			`video, got [4, "x"]`},
		{"an empty count", `{"frame_cnts": [4, 0]}`, "meta.frame_cnts: want whole numbers of frames, got 0"},
		{"not dynamic", `{"dynamic_sample": false}`, "meta.dynamic_sample is false: the number of frames of a video file " +
			"always follows fps"},
		{"dynamic by name", `{"dynamic_sample": "yes"}`, `meta.dynamic_sample: want true or false, got "yes"`},
		{"a rate of nothing", `{"fps": 0}`, "meta.fps: want a positive number, got 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := videoParts(t, DefaultVideoOptions(), `{"video": "v.mp4", "meta": `+tc.meta+
				`, "conversations": [{"from": "human", "value": "<video>"}]}`)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
	if _, err := videoParts(t, DefaultVideoOptions(), `{"video": ["a.png"], "meta": {"frame_cnts": [2, 1]}, "conversations": `+
		`[{"from": "human", "value": "<video>"}]}`); err == nil || err.Error() != "meta.frame_cnts says 3 frames, the 1st "+
		"video has 1 files" {
		t.Errorf("a list shorter than its counts: %v", err)
	}
	_, err := videoParts(t, DefaultVideoOptions(), `{"video": {"video": "v.mp4", "max_frame": 8}, "conversations": [{"from": `+
		`"human", "value": "<video>"}]}`)
	if err == nil || !strings.HasPrefix(err.Error(), `video: unknown key "max_frame" (did you mean max_frames?)`) {
		t.Errorf("a misspelt key of a video: %v", err)
	}
	o := VideoOptions{FPS: 2, MinFrames: 6, MaxFrames: 4}
	if err := o.Validate(); err == nil || err.Error() != "min_frames: want 2 to max_frames 4, got 6" {
		t.Errorf("%+v: got %v", o, err)
	}
}
