package conversation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/chat"
	"fulcrum/internal/frames"
	"fulcrum/internal/registry"
)

// files hands out a record's images and videos in order, one for each tag.
type files struct {
	images, videos       []chat.Part
	nextImage, nextVideo int
}

// files reads the record's image and video fields. An image is a path. A video is a path of a video file or of
// a folder of frames, a list of frame files, or {"frames": [...] or "video": path, "fps": n}; a list of
// image files in video is the frames of one video, any other list several videos.
func (r *record) files(root string) (*files, error) {
	f := &files{}
	for _, field := range []struct {
		name string
		raw  json.RawMessage
	}{{"image", r.Image}, {"images", r.Images}} {
		paths, err := pathList(field.raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.name, err)
		}
		if len(paths) > 0 && len(f.images) > 0 {
			return nil, errors.New("both image and images: want one of them")
		}
		for _, p := range paths {
			if p, err = resolve(p, root); err != nil {
				return nil, fmt.Errorf("%s: %w", field.name, err)
			}
			f.images = append(f.images, chat.Part{Type: "image", Path: p})
		}
	}
	for _, field := range []struct {
		name string
		raw  json.RawMessage
	}{{"video", r.Video}, {"videos", r.Videos}} {
		videos, err := videoList(field.raw, field.name == "video")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.name, err)
		}
		if len(videos) > 0 && len(f.videos) > 0 {
			return nil, errors.New("both video and videos: want one of them")
		}
		for _, v := range videos {
			part, err := v.part(root)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", field.name, err)
			}
			f.videos = append(f.videos, part)
		}
	}
	return f, nil
}

// pathList reads a path or a list of paths; null and "" are none.
func pathList(raw json.RawMessage) ([]string, error) {
	if empty(raw) {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New("want a path or a list of paths")
	}
	return list, nil
}

// given reports a key that is there and not null: tables write every column of every record.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func empty(raw json.RawMessage) bool { return !given(raw) || string(raw) == `""` }

type video struct {
	Video  string   `json:"video"`
	Path   string   `json:"path"`
	Frames []string `json:"frames"`
	FPS    float64  `json:"fps"`

	MinFrames int `json:"min_frames"`
	MaxFrames int `json:"max_frames"`
}

// videoList reads the forms of a video field; asFrames says that a list of image files is one video.
func videoList(raw json.RawMessage, asFrames bool) ([]video, error) {
	if empty(raw) {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		v, err := oneVideo(raw)
		return []video{v}, err
	}
	if asFrames && len(list) > 0 {
		var paths []string
		if json.Unmarshal(raw, &paths) == nil && !slices.ContainsFunc(paths, func(p string) bool { return !frames.IsImage(p) }) {
			return []video{{Frames: paths}}, nil
		}
	}
	out := make([]video, len(list))
	for i, item := range list {
		var err error
		if out[i], err = oneVideo(item); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return out, nil
}

func oneVideo(raw json.RawMessage) (v video, err error) {
	if json.Unmarshal(raw, &v.Path) == nil || json.Unmarshal(raw, &v.Frames) == nil {
		return v, nil
	}
	v = video{}
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) == nil {
		known := []string{"video", "path", "frames", "fps", "min_frames", "max_frames"}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if !slices.Contains(known, key) {
				return v, registry.Unknown("key", key, known)
			}
		}
	}
	if json.Unmarshal(raw, &v) != nil || v.Video == "" && v.Path == "" && len(v.Frames) == 0 {
		return v, errors.New(`want a path, a list of frame files, or {"frames": [paths], "fps": number}`)
	}
	return v, nil
}

// part resolves the video's files; a folder becomes the list of its images in natural order.
func (v video) part(root string) (chat.Part, error) {
	p := chat.Part{Type: "video", FPS: v.FPS, MinFrames: v.MinFrames, MaxFrames: v.MaxFrames}
	if v.FPS < 0 || math.IsInf(v.FPS, 0) {
		return p, fmt.Errorf("fps: want a positive number, got %v", v.FPS)
	}
	if v.MinFrames < 0 || v.MaxFrames < 0 {
		return p, fmt.Errorf("min_frames %d, max_frames %d: want positive numbers", v.MinFrames, v.MaxFrames)
	}
	var err error
	for _, f := range v.Frames {
		if f, err = resolve(f, root); err != nil {
			return p, err
		}
		p.Frames = append(p.Frames, f)
	}
	path := cmp.Or(v.Video, v.Path)
	if path == "" || len(p.Frames) > 0 {
		return p, nil
	}
	if p.Path, err = resolve(path, root); err != nil {
		return p, err
	}
	if info, err := os.Stat(p.Path); err == nil && info.IsDir() {
		folder := p.Path
		p.Path = ""
		if p.Frames, err = frames.Files(folder); err != nil {
			return p, err
		}
	}
	return p, nil
}

// resolve returns a path as the program opens it. Nothing is fetched from a network.
func resolve(path, root string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("a path is empty")
	case strings.HasPrefix(path, "http://"), strings.HasPrefix(path, "https://"):
		return "", fmt.Errorf("%s is an address: want a file on disk", path)
	}
	path = strings.TrimPrefix(path, "file://")
	if filepath.IsAbs(path) || strings.HasPrefix(path, "data:") {
		return path, nil
	}
	return filepath.Join(root, filepath.FromSlash(path)), nil
}
