package conversation

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"fulcrum/internal/chat"
)

// user returns a user turn with its files in place of the tags. The text around a tag is kept as it stands.
func (f *files) user(value string) (chat.Message, error) {
	m := chat.Message{Role: "user"}
	rest := value
	for {
		at, tag := nextTag(rest)
		if at < 0 {
			break
		}
		if at > 0 {
			m.Parts = append(m.Parts, chat.Part{Type: "text", Text: rest[:at]})
		}
		part, err := f.next(strings.Trim(tag, "<>"))
		if err != nil {
			return m, err
		}
		m.Parts = append(m.Parts, part)
		rest = rest[at+len(tag):]
	}
	if m.Parts == nil {
		m.Text = value
	} else if rest != "" {
		m.Parts = append(m.Parts, chat.Part{Type: "text", Text: rest})
	}
	return m, nil
}

func nextTag(s string) (at int, tag string) {
	image, video := strings.Index(s, "<image>"), strings.Index(s, "<video>")
	if image >= 0 && (video < 0 || image < video) {
		return image, "<image>"
	}
	return video, "<video>"
}

// next hands out the next file of a kind.
func (f *files) next(kind string) (chat.Part, error) {
	list, n := f.images, &f.nextImage
	if kind == "video" {
		list, n = f.videos, &f.nextVideo
	}
	if *n >= len(list) {
		return chat.Part{}, fmt.Errorf("the %s <%s> tag has no file: the record names %d in %s or %ss", ordinal(*n+1), kind, len(list), kind, kind)
	}
	*n++
	return list[*n-1], nil
}

// fill gives the parts of a message without a path the record's files, and makes their own paths absolute.
func (f *files) fill(m *chat.Message, root string) error {
	if m.Parts == nil {
		if m.Role != "user" {
			return nil
		}
		filled, err := f.user(m.Text)
		*m = filled
		return err
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Type == "text" || p.Picture != nil {
			continue
		}
		if p.Path == "" && len(p.Frames) == 0 {
			fps := p.FPS
			part, err := f.next(p.Type)
			if err != nil {
				return err
			}
			if *p = part; fps != 0 {
				p.FPS = fps
			}
			continue
		}
		v := video{Path: p.Path, Frames: p.Frames, FPS: p.FPS}
		resolved, err := v.part(root)
		if err != nil {
			return err
		}
		p.Path, p.Frames = resolved.Path, resolved.Frames
	}
	return nil
}

// used reports files that no tag stands for.
func (f *files) used() error {
	if f.nextImage < len(f.images) {
		return fmt.Errorf("%d images for %d <image> tags: every image wants a tag in a user turn", len(f.images), f.nextImage)
	}
	if f.nextVideo < len(f.videos) {
		return fmt.Errorf("%d videos for %d <video> tags: every video wants a tag in a user turn", len(f.videos), f.nextVideo)
	}
	return nil
}

// applyMeta takes what meta says about the videos: fps, and their number of frames (frames, num_frames, nframes
// or frame_count), each a number or a list with one for every video. A longer list of frame files is
// thinned evenly to that number; a shorter one is an error. Frames of a video file are sampled by fps.
func (f *files) applyMeta(meta json.RawMessage) error {
	if len(f.videos) == 0 || empty(meta) {
		return nil
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(meta, &keys) != nil {
		return nil // not an object: none of ours
	}
	for i := range f.videos {
		v := &f.videos[i]
		if fps, ok := perVideo(keys["fps"], i, len(f.videos)); ok && v.FPS == 0 {
			if !(fps > 0) {
				return fmt.Errorf("meta.fps: want a positive number, got %v", fps)
			}
			v.FPS = fps
		}
		for _, key := range []string{"frames", "num_frames", "nframes", "frame_count"} {
			n, ok := perVideo(keys[key], i, len(f.videos))
			if !ok {
				continue
			}
			if n < 1 || n != math.Trunc(n) {
				return fmt.Errorf("meta.%s: want a whole number of frames, got %v", key, n)
			}
			if v.Path != "" {
				continue
			}
			if len(v.Frames) < int(n) {
				return fmt.Errorf("meta.%s says %v frames, the %s video has %d files", key, n, ordinal(i+1), len(v.Frames))
			}
			v.Frames = thin(v.Frames, int(n))
		}
	}
	return nil
}

// perVideo reads a number, or entry i of a list of n numbers.
func perVideo(raw json.RawMessage, i, n int) (float64, bool) {
	var x float64
	if len(raw) == 0 || string(raw) == "null" {
		return 0, false
	}
	if json.Unmarshal(raw, &x) == nil {
		return x, true
	}
	var list []float64
	if json.Unmarshal(raw, &list) == nil && len(list) == n {
		return list[i], true
	}
	return 0, false
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

func ordinal(n int) string {
	switch {
	case n%10 == 1 && n%100 != 11:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2 && n%100 != 12:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3 && n%100 != 13:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
